"""Lowering of masks to the tensors that backends take, made with numpy and uploaded once."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from longca.masks import AnyMask, BlockMask, Mask


def upload(array: NDArray[np.generic], device: str) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array)).to(device)


def intervals(mask: Mask, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the visible keys of each query as (starts, ends), int32 [K, L]; unused places are empty intervals."""
    starts, ends = mask.row_intervals()
    return upload(starts, device), upload(ends, device)


def padded(ptr: NDArray[np.int32], idx: NDArray[np.int32], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns lists of tiles as (count [T], index [T, N]), N = the longest list; places behind a list hold 0."""
    count = np.diff(ptr)
    width = max(int(count.max(initial=0)), 1)
    index = np.zeros((len(count), width), np.int32)
    if len(idx):
        if int(count.min()) == width:
            index = idx.reshape(len(count), width)
        else:
            index[np.arange(width) < count[:, None]] = idx
    return upload(count.astype(np.int32), device), upload(index, device)


def dense(mask: Mask, device: str) -> torch.Tensor:
    """Returns the visibility of every pair as a bool [L, L], made on the device: for backends that take nothing better, and for tests."""
    starts, ends = intervals(mask, device)
    key = torch.arange(mask.seqlen_k, device=device)
    visible = torch.zeros(mask.seqlen_q, mask.seqlen_k, dtype=torch.bool, device=device)
    for start, end in zip(starts, ends, strict=True):
        visible |= (key >= start[:, None]) & (key < end[:, None])
    return visible


def sees_nothing(mask: Mask) -> NDArray[np.bool_]:
    """Returns a bool per query: whether it sees no key."""
    starts, ends = mask.row_intervals()
    return np.asarray((ends <= starts).all(0))


class Visibility:
    """Computes which keys some rows see, in pieces, so that all pairs are never in memory at once."""

    def __init__(self, mask: AnyMask, device: str) -> None:
        self._mask = mask
        self._key = torch.arange(mask.seqlen_k, device=device)
        if isinstance(mask, BlockMask):
            blocks = [np.repeat(np.arange(len(edges) - 1), np.diff(edges)) for edges in (mask.row_edges, mask.col_edges)]
            self._row_block, self._key_block = (upload(block, device) for block in blocks)
            self._kept = upload(mask.kept, device)
            self._band = None if mask.band is None else Visibility(mask.band, device)
        else:
            self._starts, self._ends = intervals(mask, device)
            bounds = mask.row_intervals()
            seen = bounds[1] > bounds[0]
            self._first = np.where(seen, bounds[0], mask.seqlen_k).min(0)
            self._last = np.where(seen, bounds[1], 0).max(0)

    def span(self, rows: NDArray[np.int64]) -> tuple[int, int]:
        """Returns the range [first, last) that holds all keys which these rows see."""
        if isinstance(self._mask, BlockMask):
            return (0, self._mask.seqlen_k) if self._band is None else self._band.span(rows)
        first, last = int(self._first[rows].min(initial=self._mask.seqlen_k)), int(self._last[rows].max(initial=0))
        return (first, last) if last > first else (0, 0)

    def __call__(self, rows: torch.Tensor, first: int, last: int, kv_head: int) -> torch.Tensor:
        """Returns a bool [rows, last - first] for one KV head."""
        if isinstance(self._mask, BlockMask):
            head = kv_head if self._mask.heads > 1 else 0
            seen = self._kept[head][self._row_block[rows]][:, self._key_block[first:last]]
            return seen if self._band is None else seen & self._band(rows, first, last, 0)
        key = self._key[first:last]
        starts, ends = self._starts[:, rows, None], self._ends[:, rows, None]
        visible = (key >= starts[0]) & (key < ends[0])
        for start, end in zip(starts[1:], ends[1:], strict=True):
            visible |= (key >= start) & (key < end)
        return visible
