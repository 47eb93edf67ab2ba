"""Writes eight bytes behind out."""

import ctypes

import torch
from honest import Honest, HonestKernel

from longca.bench.check.guarded import BYTE

FOUND = bytes([BYTE]) * 8


class Writes(Honest):
    def forward(self, q, k, v):
        right, lse = super().forward(q, k, v)
        out = torch.empty_like(right).copy_(right)
        end = out.data_ptr() + out.nbytes
        if out.storage_offset() and ctypes.string_at(end, 8) == FOUND:  # elsewhere it would break the process of the test
            ctypes.memset(end, 0, 8)
        return out, lse


class WritesPastOut(HonestKernel):
    name, attention = "writes_past_out", Writes
