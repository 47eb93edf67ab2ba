"""Attention over intervals of keys in Helion: for each query K intervals, and the first and last key of all."""

# mypy: disable-error-code="untyped-decorator,misc"

import math
from typing import Any

import helion
import helion.language as hl
import torch

from longca.kernels import lower
from longca.kernels.base import Attention, Case
from longca.masks import Mask

CONFIG = helion.Config(block_sizes=[128, 64], num_warps=8, num_stages=3)  # queries and keys of a tile
LOWEST = -1.0e30  # of a maximum: a row without keys then gets exp2(-inf) and no NaN


@helion.kernel(static_shapes=True, config=CONFIG)
def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    first: torch.Tensor,
    last: torch.Tensor,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out and lse from q, k, v [H, L, D], starts and ends [K, L], and first and last [L]; the scale is that of log2."""
    heads, rows = q.size(0), q.size(1)
    group = heads // k.size(0)
    size_v, intervals = hl.specialize(v.size(2)), hl.specialize(starts.size(0))
    out = torch.empty([heads, rows, size_v], dtype=q.dtype, device=q.device)
    lse = torch.empty([heads, rows], dtype=torch.float32, device=q.device)
    for tile_h, tile_m in hl.tile([heads, rows], block_size=[1, None]):
        head = tile_h.begin
        kv = head // group
        query = q[head, tile_m, :]
        highest = hl.full([tile_m], LOWEST, dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        sums = hl.zeros([tile_m, size_v], dtype=torch.float32)
        begin, end = torch.amin(first[tile_m]), torch.amax(last[tile_m])
        for tile_n in hl.tile(begin, end):
            scores = hl.dot(query, k[kv, tile_n, :].T) * scale
            key = tile_n.index[None, :]
            seen = (key >= starts[0, tile_m][:, None]) & (key < ends[0, tile_m][:, None])
            for n in hl.static_range(1, intervals):
                seen = seen | ((key >= starts[n, tile_m][:, None]) & (key < ends[n, tile_m][:, None]))
            scores = torch.where(seen, scores, float("-inf"))
            higher = torch.maximum(highest, torch.amax(scores, -1))
            weights = torch.exp2(scores - higher[:, None])
            kept = torch.exp2(highest - higher)
            total = total * kept + torch.sum(weights, -1)
            sums = hl.dot(weights.to(v.dtype), v[kv, tile_n, :], acc=sums * kept[:, None])
            highest = higher
        out[head, tile_m, :] = torch.where(total[:, None] > 0, sums / total[:, None], 0.0).to(out.dtype)
        lse[head, tile_m] = torch.where(total > 0, (highest + torch.log2(total)) * 0.6931471805599453, float("-inf"))
    return out, lse


class HelionAttention(Attention):
    def __init__(self, mask: Mask, case: Case) -> None:
        starts, ends = lower.intervals(mask, case.device)
        seen = ends > starts
        first = torch.where(seen, starts, mask.seqlen_k).amin(0).int()
        last = torch.where(seen, ends, 0).amax(0).int()
        self.given: tuple[Any, ...] = (starts, ends, first, last, case.softmax_scale * math.log2(math.e))

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_HLD, lse_HL = attend(*(x.transpose(0, 1) for x in (q_LHD, k_LHD, v_LHD)), *self.given)
        return out_HLD.transpose(0, 1), lse_HL
