"""Returns before a side stream has written out."""

import torch
from honest import Honest, HonestKernel


class Late(Honest):
    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        late, stream = torch.empty_like(out), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)
            late.copy_(out)
        return late, lse


class LateOnAStream(HonestKernel):
    name, attention, devices = "late_on_a_stream", Late, ("cuda",)
