# `make demo` and `make test` set up everything themselves, in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
OUT ?= out
# the tests run two at a time; more threads in each would only get in each other's way
export OMP_NUM_THREADS ?= 1

.PHONY: demo test slow test-all frameworks peers wheel lint docs figures pictures screenshots clean

demo: $(READY)  ## the main job on a CPU with small sizes; ends by naming the files it wrote
	$(BIN)/longca ls masks
	$(BIN)/longca mask causal_document --seqlen 8K --seed 42
	$(BIN)/longca mask --gallery $(OUT) --seqlen 8K --seed 42
	$(BIN)/longca verify --plugin examples/my_kernel.py --kernels torch,sdpa,my_kernel --seqlens 256
	$(BIN)/longca run quick --out $(OUT)/quick
	$(BIN)/longca export $(OUT)/quick --csv > $(OUT)/quick.csv
	$(BIN)/longca run --level cp --nproc 2 --methods ulysses,ring_p2p,magi --masks causal,causal_document --seqlens 1K --heads 4:2 --head-dim 64 \
	  --dtype fp32 --passes fwd,bwd --seed 42 --out $(OUT)/ranks
	$(BIN)/longca simulate --cluster h100-ib --gpus 64 --masks causal_document --passes fwd+bwd --out $(OUT)/simulated
	$(BIN)/longca report $(OUT)/quick $(OUT)/ranks $(OUT)/simulated -o $(OUT)/report.html
	$(BIN)/longca recommend --mask causal_document --seqlen 1K --heads 4:2 --head-dim 64 --dtype fp32 --results $(OUT)/quick
	@echo "wrote $(OUT)/masks.png, the records of kernels, ranks and simulated GPUs in $(OUT)/quick, $(OUT)/ranks and $(OUT)/simulated,"
	@echo "$(OUT)/quick.csv, and a page with all of them: $(OUT)/report.html"

PYTEST := $(BIN)/python -m pytest -q
# Each worker gets the tests of neighbouring files, so that what they share (ranks, references, compiled code) is made once.
TWO := $(PYTEST) -n 2 --dist worksteal
# Many tests have deadlines or time something, and two at a time disturb each other: one that failed must pass when it runs alone.
ALONE := [ $$? = 1 ] && echo "These tests run once more, alone:" && $(PYTEST) --last-failed --last-failed-no-failures none

test: lint  ## what every change must pass
	$(TWO) -m "not slow" || { $(ALONE); }

slow: $(READY)  ## the tests that `test` leaves out
	$(TWO) -m slow || { $(ALONE); }

test-all: test slow  ## all tests

# a folder of its own, without what these packages need besides: the examples do not use it
FRAMEWORKS := .venv/frameworks
frameworks: $(READY)  ## the examples for transformers' Trainer, torchtitan and Megatron-Core, with these packages from PyPI
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps --upgrade --target $(FRAMEWORKS) \
	  torchtitan megatron-core accelerate docstring_parser einops psutil shtab spmd_types torchdata typeguard tyro
	PYTHONPATH=$(FRAMEWORKS) $(BIN)/python -m pytest -q tests/integrations/test_examples.py

PEERS := .venv/peers
peers: $(READY)  ## the tests of other projects' context parallelism, with these packages from PyPI
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps --upgrade --target $(PEERS) \
	  ring-flash-attn yunchang deepspeed psutil py-cpuinfo hjson pydantic pydantic-core annotated-types typing-inspection einops tqdm msgpack
	PYTHONPATH=$(PEERS) $(BIN)/python -m pytest -q tests/parallel/test_peers.py

wheel: $(READY)  ## builds the wheel and tries it in a new environment
	PYTHON=$(BIN)/python tools/try_wheel.sh

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

figures: $(READY)  ## the tables of README and docs, and figures for papers in $(OUT)/figures, from the journals below results/
	$(BIN)/python tools/doc_tables.py
	mkdir -p $(OUT)
	$(BIN)/longca report results/h200 results/simulated -o $(OUT)/results.html --figures $(OUT)/figures --latex $(OUT)/results.tex

docs: $(READY)  ## the documentation as a site, site/index.html; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: $(READY)  ## the picture of the masks in the README
	$(BIN)/longca mask --gallery docs/images --seqlen 8K --seed 42
	$(BIN)/longca mask global_sliding_window --seqlen 8K --set g=1K,w=2K --bands --png docs/images/bands.png
	$(BIN)/python tools/fewer_colours.py docs/images/masks.png docs/images/bands.png

screenshots: $(READY)  ## the pictures of the page in the README, from the journals below results/ or JOURNAL=DIR; needs chromium
	PYTHONPATH=src:tests $(BIN)/python tools/screenshots.py docs/images $(JOURNAL)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	[ -x $(BIN)/python ] || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q -c constraints.txt torch hatchling editables
	$(BIN)/python -m pip install -q -c constraints.txt --no-build-isolation -e '.[dev,docs,transformers]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis site $(OUT)
