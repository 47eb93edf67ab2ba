"""A right kernel that few would write so: an online softmax whose running maximum is part of torch's graph."""

import torch

import longca

TILE = 64


def lower(mask, case):
    if not isinstance(mask, longca.masks.Mask):
        raise longca.Refused("takes masks made of bands")
    return torch.from_numpy(mask.dense()).to(case.device)


@longca.kernel(lower=lower, gives_lse=True)
def online_softmax(q, k, v, visible, scale):
    """tiles of keys one after the other, in fp32 or fp64"""
    dtype, group, exact = q.dtype, q.shape[1] // k.shape[1], torch.promote_types(q.dtype, torch.float32)
    q, k, v = (x.transpose(0, 1).to(exact) for x in (q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)))
    maximum = torch.full(q.shape[:2], -1e30, dtype=exact, device=q.device)
    total, out = torch.zeros_like(maximum), torch.zeros(*q.shape[:2], v.shape[2], dtype=exact, device=q.device)
    for start in range(0, k.shape[1], TILE):
        keys = slice(start, start + TILE)
        hidden = ~visible[:, keys]
        scores = (q @ k[:, keys].mT * scale).masked_fill(hidden, -torch.inf)
        larger = torch.maximum(maximum, scores.amax(-1))
        p = (scores - larger[..., None]).exp()
        shrink = (maximum - larger).exp()
        total = total * shrink + p.sum(-1)
        out = out * shrink[..., None] + p @ v[:, keys]
        maximum = larger
    blind = total == 0
    out = torch.where(blind[..., None], 0.0, out / torch.where(blind, 1.0, total)[..., None])
    lse = torch.where(blind, -torch.inf, maximum + torch.where(blind, 1.0, total).log())
    return out.to(dtype).transpose(0, 1), lse
