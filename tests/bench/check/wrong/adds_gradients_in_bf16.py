"""Adds dk and dv of the tiles of queries up in bf16."""

import torch
from honest import Honest, HonestKernel

TILE = 64


class Rounds(Honest):
    def backward(self, dout, q, k, v, out, lse):
        dq, _, _ = super().backward(dout, q, k, v, out, lse)
        p = (self.scores(q, k) - lse.clamp_min(-1e30)[..., None]).exp()
        dout_HLD, out_HLD, q_HLD = (x.transpose(0, 1).float() for x in (dout, out, q))
        ds = p * (dout_HLD @ self.wide(v).mT - (dout_HLD * out_HLD).sum(-1, keepdim=True)) * self.case.softmax_scale
        dk, dv = (torch.zeros(x.shape[1], *x.shape[::2], dtype=q.dtype) for x in (k, v))
        for start in range(0, len(q), TILE):
            rows = slice(start, start + TILE)
            dk += (ds[:, rows].mT @ q_HLD[:, rows]).unflatten(0, (-1, self.case.group)).sum(1).to(q.dtype)
            dv += (p[:, rows].mT @ dout_HLD[:, rows]).unflatten(0, (-1, self.case.group)).sum(1).to(q.dtype)
        return dq, dk.transpose(0, 1), dv.transpose(0, 1)


class AddsGradientsInBf16(HonestKernel):
    name, attention = "adds_gradients_in_bf16", Rounds
