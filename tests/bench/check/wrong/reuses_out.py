"""Writes out to the same memory in every call."""

import torch
from honest import Honest, HonestKernel


class Reuses(Honest):
    buffer = None

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        self.buffer = torch.empty_like(out) if self.buffer is None else self.buffer
        return self.buffer.copy_(out), lse


class ReusesOut(HonestKernel):
    name, attention = "reuses_out", Reuses
