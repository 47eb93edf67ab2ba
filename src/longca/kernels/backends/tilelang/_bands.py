"""Attention over intervals of keys in TileLang. It has no postponed annotations: the library reads them."""

# mypy: disable-error-code="valid-type,no-untyped-def,untyped-decorator,misc"

import functools
import math
from typing import Any

import numpy as np
import tilelang
import tilelang.language as T
import torch
from numpy.typing import NDArray

from longca.kernels.base import Attention, Case
from longca.kernels.lower import upload
from longca.masks import Mask

ROWS = KEYS = 128  # of a tile
STAGES, THREADS = 2, 256
LOWEST = -1.0e30  # of a maximum: a row without keys then gets exp2(-inf) and no NaN
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
LOG2E = math.log2(math.e)


def program(case: Case, tiles: int, intervals: int) -> Any:
    """Returns the kernel; without intervals every query sees every key."""
    rows, keys, size, size_v = case.seqlen_q, case.seqlen_k, case.head_dim, case.head_dim_v
    heads, heads_kv, group = case.heads_q, case.heads_kv, case.group
    dtype, accum, factor = DTYPES[case.dtype], "float32", case.softmax_scale * LOG2E

    def scaled(score: Any, starts: Any, ends: Any, row: Any, key: Any) -> Any:
        """Returns the score of a pair, or minus infinity where it is hidden."""
        if not intervals:
            return score * factor
        inside = [T.And(key >= starts[n, row], key < ends[n, row]) for n in range(intervals)]
        return T.if_then_else(functools.reduce(T.Or, inside), score * factor, -T.infinity(accum))

    @T.prim_func
    def attend(
        q: T.Tensor((rows, heads, size), dtype),
        k: T.Tensor((keys, heads_kv, size), dtype),
        v: T.Tensor((keys, heads_kv, size_v), dtype),
        starts: T.Tensor((max(intervals, 1), tiles * ROWS), "int32"),
        ends: T.Tensor((max(intervals, 1), tiles * ROWS), "int32"),
        first: T.Tensor((tiles,), "int32"),
        last: T.Tensor((tiles,), "int32"),
        out: T.Tensor((rows, heads, size_v), dtype),
        lse: T.Tensor((heads, rows), accum),
    ):
        with T.Kernel(tiles, heads, threads=THREADS) as (bx, by):
            q_tile, k_tile = T.alloc_shared((ROWS, size), dtype), T.alloc_shared((KEYS, size), dtype)
            v_tile, weights = T.alloc_shared((KEYS, size_v), dtype), T.alloc_fragment((ROWS, KEYS), dtype)
            scores, sums = T.alloc_fragment((ROWS, KEYS), accum), T.alloc_fragment((ROWS, size_v), accum)
            highest, before = T.alloc_fragment((ROWS,), accum), T.alloc_fragment((ROWS,), accum)
            kept, added, total = T.alloc_fragment((ROWS,), accum), T.alloc_fragment((ROWS,), accum), T.alloc_fragment((ROWS,), accum)
            T.copy(q[bx * ROWS : (bx + 1) * ROWS, by, :], q_tile)
            T.fill(sums, 0)
            T.fill(total, 0)
            T.fill(highest, LOWEST)
            for n in T.Pipelined(last[bx] - first[bx], num_stages=STAGES):
                T.copy(k[(first[bx] + n) * KEYS : (first[bx] + n + 1) * KEYS, by // group, :], k_tile)
                T.clear(scores)
                T.gemm(q_tile, k_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                for i, j in T.Parallel(ROWS, KEYS):
                    scores[i, j] = scaled(scores[i, j], starts, ends, bx * ROWS + i, (first[bx] + n) * KEYS + j)
                T.copy(highest, before)
                T.reduce_max(scores, highest, dim=1, clear=False)
                for i in T.Parallel(ROWS):
                    highest[i] = T.max(highest[i], before[i])
                for i in T.Parallel(ROWS):
                    kept[i] = T.exp2(before[i] - highest[i])
                for i, j in T.Parallel(ROWS, KEYS):
                    scores[i, j] = T.exp2(scores[i, j] - highest[i])
                T.reduce_sum(scores, added, dim=1)
                for i in T.Parallel(ROWS):
                    total[i] = total[i] * kept[i] + added[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(ROWS, size_v):
                    sums[i, j] *= kept[i]
                T.copy(v[(first[bx] + n) * KEYS : (first[bx] + n + 1) * KEYS, by // group, :], v_tile)
                T.gemm(weights, v_tile, sums, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(ROWS, size_v):
                sums[i, j] = T.if_then_else(total[i] > 0, sums[i, j] / total[i], 0)
            for i in T.Parallel(ROWS):
                highest[i] = T.if_then_else(total[i] > 0, (highest[i] + T.log2(total[i])) / LOG2E, -T.infinity(accum))
            T.copy(sums, out[bx * ROWS : (bx + 1) * ROWS, by, :])
            T.copy(highest, lse[by, bx * ROWS : (bx + 1) * ROWS])

    return attend


class TileLangAttention(Attention):
    def __init__(self, mask: Mask, case: Case) -> None:
        starts, ends, first, last = bounds(mask)
        whole = mask.area == mask.seqlen_q * mask.seqlen_k and mask.seqlen_k % KEYS == 0
        self.given = tuple(upload(table, case.device) for table in (starts, ends, first, last))
        self.call: Any = tilelang.compile(program(case, len(first), 0 if whole else len(starts)), out_idx=[7, 8], target="cuda")

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, lse_HL = self.call(q_LHD, k_LHD, v_LHD, *self.given)
        return out_LHD, lse_HL


def bounds(mask: Mask) -> tuple[NDArray[np.int32], ...]:
    """Returns starts and ends [K, rows in whole tiles], and the first and the end of the key tiles of each tile of queries."""
    missing = -mask.seqlen_q % ROWS
    starts, ends = (np.pad(table, ((0, 0), (0, missing))).astype(np.int32) for table in mask.row_intervals())  # added rows see nothing
    seen = ends > starts
    low = np.where(seen, starts, mask.seqlen_k).min(0).reshape(-1, ROWS).min(1) // KEYS
    high = -(-np.where(seen, ends, 0).max(0).reshape(-1, ROWS).max(1) // KEYS)
    return starts, ends, np.minimum(low, high).astype(np.int32), high.astype(np.int32)
