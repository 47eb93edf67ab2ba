"""The work that a kernel does on a mask: floating-point operations on every pair of the tiles that the mask touches.

Times of one kernel at other lengths and windows are in proportion to it rather than to the visible pairs, as kernels compute whole tiles.
"""

from __future__ import annotations

from collections.abc import Iterable

from longca.kernels.base import Case
from longca.masks import AnyMask, Mask
from longca.results.limits import LONGEST, covered, tile_rows
from longca.results.metrics import flops_of, pairs
from longca.results.problem import Pass
from longca.results.record import Masks, Record

_SHARES: dict[tuple[str, int], float] = {}  # by the digest of a mask, which says all that it shows, and the rows of a tile


class TileWork:
    """Work of records, and of masks that were not measured. The tiles of each mask are counted once.

    Where the journal of one of the records lacks its mask, all work is that of the visible pairs: both kinds do not compare.
    """

    def __init__(self, entries: Masks, records: Iterable[Record]) -> None:
        self._masks = {digest: entry for (digest, _), entry in entries.items()}  # the same under any name
        self._by_tiles = all(record.built.digest in self._masks for record in records)

    def of_record(self, record: Record) -> float:
        """The work of a record whose status is ok."""
        visible = (record.flops or 0) / flops_of(1, record.problem.head_dim, record.problem.head_dim_v, record.problem.pass_)
        work = 0.0
        for part in record.problem.pass_.parts:
            rows = tile_rows(part, record.problem.heads_q, record.problem.heads_kv)
            work += (
                flops_of(1, record.problem.head_dim, record.problem.head_dim_v, part)
                * visible
                / self._share_of_digest(record.built.digest, rows)
            )
        return work

    def of_mask(self, mask: AnyMask, case: Case, pass_: Pass) -> float:
        work = 0.0
        for part in pass_.parts:
            share = self._share(mask, tile_rows(part, case.heads_q, case.heads_kv))
            work += flops_of(pairs(mask, case), case.head_dim, case.head_dim_v, part) / share
        return work

    def _share_of_digest(self, digest: str, rows: int) -> float:
        if not self._by_tiles:
            return 1.0
        if (digest, rows) not in _SHARES:
            entry = self._masks[digest]
            mask = Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands) if entry.bands and entry.seqlen_q <= LONGEST else None
            _SHARES[digest, rows] = 1.0 if mask is None else _covered(mask, rows)
        return _SHARES[digest, rows]

    def _share(self, mask: AnyMask, rows: int) -> float:
        """The visible part of the touched tiles; 1 for block patterns, whose blocks are whole tiles."""
        return _covered(mask, rows) if self._by_tiles and isinstance(mask, Mask) else 1.0


def _covered(mask: Mask, rows: int) -> float:
    return covered(mask.bands, mask.area, mask.seqlen_q, mask.seqlen_k, rows)
