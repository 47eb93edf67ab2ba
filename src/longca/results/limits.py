"""What tiles let a mask reach: the dense speed times the mask's area over the area of the tiles that it touches.

A kernel works on whole tiles, so it computes every pair of a tile that the mask touches. Forward kernels pack the query heads of one KV
head into the rows of a tile: a tile of 128 rows holds 128 / (Hq / Hkv) tokens of every head. Backward kernels do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from longca.masks.bands import Bands
from longca.masks.tiles import per_row_tile
from longca.results.problem import Pass
from longca.results.reading import Results
from longca.results.record import Record

TILE_ROWS, TILE_KEYS, BACKWARD_ROWS = 128, 128, 64
LONGEST = 1 << 26  # tokens; the tiles of a longer mask take too much memory to count
DENSE = "full"
LIMITED = (Pass.FWD, Pass.BWD)  # passes that are one kernel, with one shape of tiles

Group = tuple[object, ...]  # what a dense speed and the speeds beside it have in common


def tile_rows(pass_: Pass, heads_q: int, heads_kv: int) -> int:
    """The tokens of a tile."""
    return BACKWARD_ROWS if pass_ is Pass.BWD else max(1, TILE_ROWS * heads_kv // heads_q)


def covered(bands: Bands, area: int, seqlen_q: int, seqlen_k: int, rows_per_tile: int, keys_per_tile: int = TILE_KEYS) -> float:
    """The share of the touched tiles' area that a mask shows: 1 where no tile is cut. Tiles end where the sequence does."""
    pieces, tile = per_row_tile(bands, rows_per_tile)
    columns = -(-seqlen_k // keys_per_tile) + 1  # one more than there are: tiles of two rows do not touch
    first = tile * columns
    start, end = first + pieces.lo // keys_per_tile, first + (pieces.hi_last - 1) // keys_per_tile + 1
    order = np.argsort(start, kind="stable")
    start, end, first, tile = start[order], end[order], first[order], tile[order]
    reach = np.maximum.accumulate(np.append(0, end[:-1])) if len(end) else end
    start = np.minimum(np.maximum(start, reach), end)  # what an earlier piece touches counts once
    keys = np.minimum((end - first) * keys_per_tile, seqlen_k) - np.minimum((start - first) * keys_per_tile, seqlen_k)
    rows = np.minimum((tile + 1) * rows_per_tile, seqlen_q) - tile * rows_per_tile
    touched = int((rows * keys).sum())
    return area / touched if touched else 1.0


class Limits:
    """The speeds that tiles allow, for the records of one or several journals. The dense speed of a pass is the highest of any kernel on
    the mask `full`, at any length, in all runs on devices of one name; a pass without one has no limit."""

    def __init__(self, results: Results) -> None:
        self._results, self._masks = results, results.masks
        self._bands: dict[str, Bands] = {}
        self._covered: dict[tuple[str, int], float | None] = {}
        self._dense: dict[Group, float] = {}
        for record in results.records:
            if record.problem.mask == DENSE and is_limited(record):
                group = self._group(record)
                self._dense[group] = max(self._dense.get(group, 0.0), record.speed)

    def of(self, record: Record) -> float | None:
        """The limit of a timed record in TFLOP/s; None where it has none."""
        dense = self._dense.get(self._group(record)) if is_limited(record) else None
        share = None if dense is None else self._share(record)
        return None if dense is None or share is None else dense * share

    def share(self, records: Sequence[Record]) -> float | None:
        """The time that tiles allow for these passes, one after the other, over the time that they took."""
        limits = [self.of(record) for record in records]
        allowed = [record.times.median * record.speed / limit for record, limit in zip(records, limits, strict=True) if limit is not None]
        return sum(allowed) / sum(record.times.median for record in records) if len(allowed) == len(records) else None

    def _group(self, record: Record) -> Group:
        return self._results.environment(record).name, record.problem.pass_, replace(record.problem.operator, scale=0.0)

    def _share(self, record: Record) -> float | None:
        rows = tile_rows(record.problem.pass_, record.problem.heads_q, record.problem.heads_kv)
        place = record.built.digest, rows
        if place not in self._covered:
            self._covered[place] = self._covered_share(record, rows)
        return self._covered[place]

    def _covered_share(self, record: Record, rows: int) -> float | None:
        entry = self._masks.get((record.built.digest, record.problem.mask))
        if entry is None or not entry.bands or entry.seqlen_q > LONGEST:
            return None
        if record.built.digest not in self._bands:
            self._bands[record.built.digest] = Bands(*np.array(entry.bands, np.int64).reshape(-1, 6).T)
        return covered(self._bands[record.built.digest], entry.area, entry.seqlen_q, entry.seqlen_k, rows)


def is_limited(record: Record) -> bool:
    """Whether a record is one kernel's time on one device."""
    return record.ok and record.problem.pass_ in LIMITED and record.split is None
