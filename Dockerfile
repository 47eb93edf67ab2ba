# LongCA with the kernels for NVIDIA GPUs. CI does not build this image.
#   docker build -t longca .
#   docker run --rm --gpus all -v "$PWD/out:/out" longca run quick --out /out/quick
FROM python:3.12-slim
# Triton and FlexAttention compile a small C file on first use
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /longca
COPY . .
RUN pip install --no-cache-dir -c constraints.txt '.[gpu]'
WORKDIR /out
ENTRYPOINT ["longca"]
CMD ["doctor"]
