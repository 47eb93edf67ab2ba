"""Wrong kernels that compute other numbers: in low precision, in some rows, with some sizes."""

from dataclasses import replace

import torch
from honest import Honest, wrong

import longca
from longca.bench.check.sampled_rows import sample_rows

TILE = 64


@wrong
class AddsInBf16(Honest):
    """Adds the tiles of an online softmax up in bf16."""

    def forward(self, q, k, v):
        scores = self.scores(q, k)
        lse = scores.logsumexp(-1)
        p, v_HLD = (scores - lse.clamp_min(-1e30)[..., None]).exp(), self.wide(v)
        out = torch.zeros(*p.shape[:2], v.shape[2], dtype=q.dtype)
        for start in range(0, k.shape[0], TILE):
            out += (p[..., start : start + TILE] @ v_HLD[:, start : start + TILE]).to(q.dtype)
        return out.transpose(0, 1), lse


@wrong
class AddsGradientsInBf16(Honest):
    """Adds dk and dv of the tiles of queries up in bf16."""

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


@wrong
class ClampsV(Honest):
    """Clamps V at 400, which no number of the usual sizes reaches."""

    def forward(self, q, k, v):
        return super().forward(q, k, v.clamp(-400, 400))


@wrong
class IgnoresScale(Honest):
    """Always scales by 1/sqrt(head size)."""

    def __init__(self, mask, case):
        super().__init__(mask, replace(case, scale=0.0))


@wrong
class IgnoresScaleBackward(Honest):
    """Scales by 1/sqrt(head size) in its backward."""

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        ratio = replace(self.case, scale=0.0).softmax_scale / self.case.softmax_scale
        return dq * ratio, dk * ratio, dv


@wrong
class NanInBlindRows(Honest):
    """Divides 0 by 0 in rows that see no key."""

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        out[lse.T.isinf()] = float("nan")
        return out, lse


@wrong
class NoMaximum(Honest):
    """A softmax that does not subtract the maximum: right while scores are small."""

    def forward(self, q, k, v):
        p = self.scores(q, k).exp()
        total = p.sum(-1, keepdim=True)
        return ((p @ self.wide(v)) / total).transpose(0, 1).to(q.dtype), total.squeeze(-1).log()


@wrong
class OnlySampledRows(Honest):
    """Computes the rows that the check looks at, which it can know, and no others."""

    def __init__(self, mask, case):
        super().__init__(mask, case)
        self.rows = torch.from_numpy(sample_rows(mask, 0).rows)

    def forward(self, q, k, v):
        right, lse = super().forward(q, k, v)
        out = torch.zeros_like(right)
        out[self.rows] = right[self.rows]
        return out, lse


@wrong
class OnlySparseDk(Honest):
    """Its dk is right only where dout is 0 in most rows, as in the check."""

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        dense = bool((dout != 0).flatten(1).any(1).float().mean() > 0.9)
        return dq, dk * (not dense), dv


@wrong
class OnlySparseDv(Honest):
    """Its dv is right only where dout is 0 in most rows, as in the check."""

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        dense = bool((dout != 0).flatten(1).any(1).float().mean() > 0.9)
        return dq, dk, dv * (not dense)


@wrong
class RecomputesLse(Honest):
    """A backward that takes its own out and lse, not those that it is given: right on one device, wrong in a ring."""

    def backward(self, dout, q, k, v, out, lse):
        return super().backward(dout, q, k, v, *super().forward(q, k, v))


@longca.kernel
def scales_without_gradients(q, k, v, mask, scale):
    """Takes another way where torch records no gradients, and scales the scores wrongly there."""
    if not torch.is_grad_enabled():
        scale *= 1.05
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1).transpose(0, 1) for x in (k, v))
    scores = (q.transpose(0, 1) @ k.mT * scale).masked_fill(~torch.from_numpy(mask.dense()), float("-inf"))
    return (scores.softmax(-1).nan_to_num() @ v).transpose(0, 1)


@wrong
class SmallLastKeys(Honest):
    """dk of the last 128 keys is 2 % too small."""

    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = super().backward(dout, q, k, v, out, lse)
        return dq, torch.cat([dk[:-128], (dk[-128:] * 0.98).to(dk.dtype)]), dv


@wrong
class WrongLargeScoresBackward(Honest):
    """A backward that is wrong in rows whose lse is large."""

    def backward(self, dout, q, k, v, out, lse):
        return super().backward(dout, q, k, v, out, torch.where(lse > 20, lse + 1, lse))


@wrong
class WrongRowOfTiles(Honest):
    """Returns row 36 twice, of every 64 rows."""

    def forward(self, q, k, v):
        out, lse = super().forward(q, k, v)
        out[37::64] = out[36::64][: len(out[37::64])]
        return out, lse
