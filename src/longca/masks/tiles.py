"""Which tiles of a mask are full, which partial: as runs, found from the bands without looking at any pair.

Per row tile a band covers some key tiles wholly and cuts a few at its ends. The counts of pairs of all bands are added up along
the keys; a tile whose count is its size is full, one with fewer is partial, one with none is not listed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.masks import area
from longca.masks.bands import Bands, Ints, spread


class TileLists(NamedTuple):
    """For each tile of one side, the full and the partial tiles of the other side: index[ptr[t]:ptr[t+1]], ascending."""

    full_ptr: NDArray[np.int32]
    full_idx: NDArray[np.int32]
    partial_ptr: NDArray[np.int32]
    partial_idx: NDArray[np.int32]


class Runs(NamedTuple):
    """Neighbouring tiles of one row tile and one kind: the key tiles [start, end) of row tile `row`."""

    row: Ints
    start: Ints
    end: Ints
    full: NDArray[np.bool_]


@dataclass(frozen=True)
class Tiles:
    """The tiles of a mask in tiles of `rows_per_tile` x `keys_per_tile`; the last ones may be smaller."""

    bands: Bands
    flipped: Bands
    seqlen_q: int
    seqlen_k: int
    rows_per_tile: int
    keys_per_tile: int

    @cached_property
    def runs(self) -> Runs:
        return find_runs(self.bands, self.seqlen_q, self.seqlen_k, self.rows_per_tile, self.keys_per_tile)

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.seqlen_q // self.rows_per_tile), -(-self.seqlen_k // self.keys_per_tile)

    @property
    def full(self) -> int:
        return int((self.runs.end - self.runs.start)[self.runs.full].sum())

    @property
    def partial(self) -> int:
        return int((self.runs.end - self.runs.start)[~self.runs.full].sum())

    def by_row(self) -> TileLists:
        """For each tile of queries, the tiles of keys."""
        return _lists(self.runs, self.grid[0])

    def by_col(self) -> TileLists:
        """For each tile of keys, the tiles of queries."""
        flipped = find_runs(self.flipped, self.seqlen_k, self.seqlen_q, self.keys_per_tile, self.rows_per_tile)
        return _lists(flipped, self.grid[1])


def _lists(runs: Runs, rows: int) -> TileLists:
    def chosen(kind: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        start, count = runs.start[kind].astype(np.int32), (runs.end - runs.start)[kind]
        ptr = np.zeros(rows + 1, np.int64)
        np.add.at(ptr, runs.row[kind] + 1, count)
        # counting up by one, with a jump at the start of each run
        step = np.ones(int(count.sum()), np.int32)
        first = np.cumsum(count) - count
        if len(step):
            step[first] = start - np.append(0, start[:-1] + count[:-1].astype(np.int32) - 1)
        return np.cumsum(ptr).astype(np.int32), np.cumsum(step, out=step, dtype=np.int32)

    return TileLists(*chosen(runs.full), *chosen(~runs.full))


def find_runs(bands: Bands, seqlen_q: int, seqlen_k: int, rows_per_tile: int, keys_per_tile: int) -> Runs:
    pieces, row_tile = per_row_tile(bands, rows_per_tile)
    size = keys_per_tile
    touched, touched_end = pieces.lo // size, (pieces.hi_last - 1) // size + 1
    whole = np.minimum(-(-pieces.lo_last // size), touched_end)
    whole_end = np.maximum(pieces.hi // size, whole)
    height = pieces.height

    # tiles at the two ends of a piece, counted one by one; where a piece covers no tile wholly they are all there is
    left, left_tile = spread(touched, whole)
    right, right_tile = spread(whole_end, touched_end)
    which, tile = np.concatenate([left, right]), np.concatenate([left_tile, right_tile])
    cut = pieces.take(which)
    count = area.before(cut, (tile + 1) * size) - area.before(cut, tile * size)
    has_whole = whole_end > whole

    # each piece raises the count of pairs at the start of its tiles and lowers it behind them
    row = np.concatenate([row_tile[which], row_tile[which], row_tile[has_whole], row_tile[has_whole]])
    position = np.concatenate([tile, tile + 1, whole[has_whole], whole_end[has_whole]])
    pairs = height[has_whole] * size
    change = np.concatenate([count, -count, pairs, -pairs])
    columns = -(-seqlen_k // size) + 1
    key = row * columns + position
    key, inverse = np.unique(key, return_inverse=True)
    total = np.zeros(len(key), np.int64)
    np.add.at(total, inverse, change)
    level = np.cumsum(total)
    row, start = key // columns, key % columns
    end = np.append(start[1:], 0)
    listed = level > 0
    row, start, end, level = row[listed], start[listed], end[listed], level[listed]
    tile_rows = np.minimum(seqlen_q - row * rows_per_tile, rows_per_tile)
    tile_keys = np.minimum(seqlen_k - start * size, size)  # only the last tile can be narrower, and it is a run of its own
    return _joined(Runs(row, start, end, level == tile_rows * tile_keys))


def per_row_tile(bands: Bands, rows_per_tile: int) -> tuple[Bands, Ints]:
    """The bands cut at the edges of row tiles, and the row tile of each piece."""
    which, tile = spread(bands.q0 // rows_per_tile, (bands.q1 - 1) // rows_per_tile + 1)
    start = np.maximum(bands.q0[which], tile * rows_per_tile)
    end = np.minimum(bands.q1[which], (tile + 1) * rows_per_tile)
    return bands.part(which, start, end), tile


def _joined(runs: Runs) -> Runs:
    row, start, end, full = runs
    if len(row) == 0:
        return runs
    new = np.append(True, (row[1:] != row[:-1]) | (start[1:] != end[:-1]) | (full[1:] != full[:-1]))
    first = np.flatnonzero(new)
    return Runs(row[first], start[first], end[np.append(first[1:], len(row)) - 1], full[first])
