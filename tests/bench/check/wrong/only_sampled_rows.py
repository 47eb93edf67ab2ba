"""Computes the rows that the check looks at, which it can know, and no others."""

import torch
from honest import Honest, HonestKernel

from longca.bench.check.sampled_rows import sample_rows


class Samples(Honest):
    def __init__(self, mask, case):
        super().__init__(mask, case)
        self.rows = torch.from_numpy(sample_rows(mask, 0).rows)

    def forward(self, q, k, v):
        right, lse = super().forward(q, k, v)
        out = torch.zeros_like(right)
        out[self.rows] = right[self.rows]
        return out, lse


class OnlySampledRows(HonestKernel):
    name, attention = "only_sampled_rows", Samples
