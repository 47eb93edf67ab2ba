"""Visible pairs of the forms in which other libraries take masks, each by its library's documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Dense = NDArray[np.bool_]


def pairs_of_varlen(cu_q: Any, cu_k: Any, left: int = -1, right: int = -1) -> Dense:
    """FlashAttention: documents, in each the last query and the last key on the diagonal; a window around it, -1 for no limit."""
    cu_q, cu_k = np.asarray(cu_q), np.asarray(cu_k)
    dense = np.zeros((cu_q[-1], cu_k[-1]), bool)
    for q0, q1, k0, k1 in zip(cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:], strict=True):
        ahead = np.arange(k0, k1) - k1 - (np.arange(q0, q1)[:, None] - q1)
        dense[q0:q1, k0:k1] = ((right < 0) | (ahead <= right)) & ((left < 0) | (-ahead <= left))
    return dense


def pairs_of_slices(q_ranges: Any, k_ranges: Any, types: Any, rows: int, keys: int) -> NDArray[np.int64]:
    """MagiAttention, how often each pair is seen: causal (1, 3) is aligned at the last query and key, inverse (2, 3) at the first."""
    seen = np.zeros((rows, keys), int)
    for (q0, q1), (k0, k1), kind in zip(q_ranges, k_ranges, types, strict=True):
        row, key = np.arange(q0, q1)[:, None], np.arange(k0, k1)
        below, above = key - k1 <= row - q1, key - k0 >= row - q0
        seen[q0:q1, k0:k1] += (below | (kind not in (1, 3))) & (above | (kind not in (2, 3)))
    return seen


def pairs_of_columns(hidden_rows: Any, causal: bool, rows: int) -> Dense:
    """FlashMask: per key the rows that do not see it, [keys, 1 or 2] beside a causal mask, else [keys, 2 or 4]."""
    row, bounds = np.arange(rows)[:, None], np.asarray(hidden_rows).T
    if causal:
        end = bounds[1] if len(bounds) == 2 else rows
        return ~((row >= bounds[0]) & (row < end)) & (np.arange(bounds.shape[1]) <= row)
    if len(bounds) == 2:
        return (row < bounds[0]) & (row >= bounds[1])
    return ~((row >= bounds[0]) & (row < bounds[1]) | (row >= bounds[2]) & (row < bounds[3]))
