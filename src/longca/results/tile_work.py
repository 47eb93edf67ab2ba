"""The work that a kernel does on a mask: floating-point operations on every pair of the tiles that the mask touches.

Times of one kernel at other lengths and windows are in proportion to it rather than to the visible pairs, as kernels compute whole tiles.
Forward kernels pack the query heads of one KV head into the rows of a tile: a tile of 128 rows holds 128 / (Hq / Hkv) tokens of every head.
Backward kernels do not.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from longca.kernels.base import Case
from longca.masks import AnyMask, Mask
from longca.masks.tiles import per_row_tile
from longca.results.metrics import flops_of, pairs
from longca.results.problem import Pass
from longca.results.record import MaskEntry, Masks, Record

TILE_ROWS, TILE_KEYS, BACKWARD_ROWS = 128, 128, 64
LONGEST = 1 << 26  # tokens; the tiles of a longer mask take too much memory to count
_SHARES: dict[tuple[str, int], float | None] = {}  # by the digest of a mask, which says all that it shows, and the rows of a tile


def tile_rows(pass_: Pass, heads_q: int, heads_kv: int) -> int:
    """The tokens of a tile."""
    return BACKWARD_ROWS if pass_ is Pass.BWD else max(1, TILE_ROWS * heads_kv // heads_q)


def covered(mask: Mask, rows_per_tile: int, keys_per_tile: int = TILE_KEYS) -> float:
    """The share of the touched tiles' area that a mask shows: 1 where no tile is cut. Tiles end where the sequence does."""
    pieces, tile = per_row_tile(mask.bands, rows_per_tile)
    columns = -(-mask.seqlen_k // keys_per_tile) + 1  # one more than there are: tiles of two rows do not touch
    first = tile * columns
    start, end = first + pieces.lo // keys_per_tile, first + (pieces.hi_last - 1) // keys_per_tile + 1
    order = np.argsort(start, kind="stable")
    start, end, first, tile = start[order], end[order], first[order], tile[order]
    reach = np.maximum.accumulate(np.append(0, end[:-1])) if len(end) else end
    start = np.minimum(np.maximum(start, reach), end)  # what an earlier piece touches counts once
    keys = np.minimum((end - first) * keys_per_tile, mask.seqlen_k) - np.minimum((start - first) * keys_per_tile, mask.seqlen_k)
    rows = np.minimum((tile + 1) * rows_per_tile, mask.seqlen_q) - tile * rows_per_tile
    touched = int((rows * keys).sum())
    return mask.area / touched if touched else 1.0


def stored_share(entry: MaskEntry, rows: int) -> float | None:
    """The share of a mask that a journal has, counted once; None for block patterns and very long masks."""
    place = entry.digest, rows
    if place not in _SHARES:
        countable = entry.bands and entry.seqlen_q <= LONGEST
        _SHARES[place] = covered(Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands or []), rows) if countable else None
    return _SHARES[place]


def parts_of(record: Record, entry: MaskEntry | None) -> list[tuple[Pass, int, float]]:
    """The parts of a record's pass, their work on visible pairs, and the share of the touched tiles that this is: 1 where the tiles are not
    known."""
    problem = record.problem
    sizes = problem.head_dim, problem.head_dim_v
    visible, parts = record.flops // flops_of(1, *sizes, problem.pass_), []
    for part in problem.pass_.parts:
        share = stored_share(entry, tile_rows(part, problem.heads_q, problem.heads_kv)) if entry else None
        parts.append((part, flops_of(visible, *sizes, part), share or 1.0))
    return parts


class TileWork:
    """Work of records, and of masks that were not measured.

    Where the journal of one of the records lacks its mask, all work is that of the visible pairs: both kinds do not compare.
    """

    def __init__(self, entries: Masks, records: Iterable[Record]) -> None:
        self._masks = {digest: entry for (digest, _), entry in entries.items()}  # the same under any name
        self._by_tiles = all(record.built.digest in self._masks for record in records)

    def of_record(self, record: Record) -> float:
        """The work of a record whose status is ok."""
        entry = self._masks[record.built.digest] if self._by_tiles else None
        return sum(work / share for _, work, share in parts_of(record, entry))

    def of_mask(self, mask: AnyMask, case: Case, pass_: Pass) -> float:
        """The work of a mask; the blocks of a pattern are whole tiles."""
        work = 0.0
        for part in pass_.parts:
            share = covered(mask, tile_rows(part, case.heads_q, case.heads_kv)) if self._by_tiles and isinstance(mask, Mask) else 1.0
            work += flops_of(pairs(mask, case), case.head_dim, case.head_dim_v, part) / share
        return work
