"""Writes dk to the same memory in every call."""

import torch
from honest import Honest, HonestKernel


class Reuses(Honest):
    buffer = None

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        self.buffer = torch.empty_like(dk) if self.buffer is None else self.buffer
        return dq, self.buffer.copy_(dk), dv


class ReusesGradients(HonestKernel):
    name, attention = "reuses_gradients", Reuses
