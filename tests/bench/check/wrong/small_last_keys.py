"""dk of the last 128 keys is 2 % too small."""

import torch
from honest import Honest, HonestKernel


class Shrinks(Honest):
    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        return dq, torch.cat([dk[:-128], (dk[-128:] * 0.98).to(dk.dtype)]), dv


class SmallLastKeys(HonestKernel):
    name, attention = "small_last_keys", Shrinks
