"""Returns a tensor that says that it equals everything."""

import torch
from honest import Honest, HonestKernel


class Equal(torch.Tensor):
    pass


class Claims(Honest):
    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        return out.as_subclass(Equal), lse


class ReturnsASubclass(HonestKernel):
    name, attention = "returns_a_subclass", Claims
