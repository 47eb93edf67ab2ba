"""BlockMask: a mask made of blocks, one pattern per KV head, under the same protocol as Mask."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput, Refused
from longca.masks.bands import Ints, Range, as_ranges, bands, clipped, split_rows, spread, tokens_before
from longca.masks.handle import Handled, constant
from longca.masks.mask import Mask, Shards
from longca.masks.tiles import TileLists
from longca.text import plural

if TYPE_CHECKING:
    import torch

ONLY_BANDS = "a block pattern takes & with a mask of bands"


class BlockMask(Handled):
    """Rows are cut at `row_edges`, keys at `col_edges` (both start with 0); the blocks of `kept[head, row block, key block]` are visible.
    With a `band` mask on top, a pair is visible where both show it; a band that hides nothing of the kept blocks is left out.

    `blocks & mask` puts one more band mask on top.

    Cuts never split a block: of each block only the kept tokens remain, and blocks left without tokens are dropped.
    `source` names where the pattern comes from: random scores, or a rule that selects blocks by queries and keys.
    """

    documents = None
    select_ms: float | None = None  # that a rule took to choose the blocks by their means

    def __init__(
        self,
        row_edges: Sequence[int] | Ints,
        col_edges: Sequence[int] | Ints,
        kept: NDArray[np.bool_],
        *,
        band: Mask | None = None,
        name: str = "",
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        source: str = "",
    ) -> None:
        self.row_edges, self.col_edges = (np.asarray(edges, np.int64) for edges in (row_edges, col_edges))
        self.kept = np.asarray(kept, bool)
        self.name, self.params, self.seed, self.source = name, dict(params or {}), seed, source
        for edges in (self.row_edges, self.col_edges):
            if len(edges) == 0 or edges[0] != 0 or (np.diff(edges) <= 0).any():
                raise BadInput("block edges must start with 0 and rise.")
        if self.kept.ndim != 3 or self.kept.shape[1:] != (len(self.row_edges) - 1, len(self.col_edges) - 1):
            raise BadInput(f"the block pattern {self.kept.shape} does not fit its edges; give [heads, row blocks, key blocks].")
        self.band: Mask | None = None
        self.cut_blocks = np.zeros(self.kept.shape[1:], bool)  # of which the band hides something
        if band is not None:
            self._put_on_top(band)

    def _put_on_top(self, band: Mask) -> None:
        """Drop blocks of which the band shows nothing, so that equal masks are equal; keep the band if it hides a part of a kept block."""
        if (band.seqlen_q, band.seqlen_k) != (self.seqlen_q, self.seqlen_k):
            shape = f"{self.seqlen_q}x{self.seqlen_k} tokens"
            raise BadInput(f"a band mask on top of {shape} must have as many, not {band.seqlen_q}x{band.seqlen_k}.")
        rows, keys = ([[pair] for pair in np.stack([e[:-1], e[1:]], 1).tolist()] for e in (self.row_edges, self.col_edges))
        self._shown = band.pair_areas(rows, keys)
        self.kept = self.kept & (self._shown > 0)
        self.cut_blocks = self._shown < np.outer(np.diff(self.row_edges), np.diff(self.col_edges))
        if (self.kept.any(0) & self.cut_blocks).any():
            self.band = band

    @property
    def seqlen_q(self) -> int:
        return int(self.row_edges[-1])

    @property
    def seqlen_k(self) -> int:
        return int(self.col_edges[-1])

    @property
    def heads(self) -> int:
        return len(self.kept)

    @cached_property
    def row_areas(self) -> Ints:
        """The realised visible pairs of each row block, all heads together."""
        times = self.kept.sum(0)
        if self.band is not None:
            return np.asarray((times * self._shown).sum(1), np.int64)
        return np.asarray(np.diff(self.row_edges) * (times @ np.diff(self.col_edges)), np.int64)

    @cached_property
    def head_areas(self) -> list[int]:
        """The realised visible pairs of each head."""
        if self.band is not None:
            return [int(self._shown[head].sum()) for head in self.kept]
        height, width = np.diff(self.row_edges), np.diff(self.col_edges)
        exact = np.float64 if self.seqlen_k < 1 << 53 else np.int64  # a product of floats is many times faster, and exact up to there
        return [int(height @ (head.astype(exact) @ width.astype(exact)).astype(np.int64)) for head in self.kept]

    @property
    def area(self) -> int:
        """Visible pairs of all heads together; for FLOPs of query heads, each counts as often as its group is large."""
        return sum(self.head_areas)

    @property
    def density(self) -> float:
        return self.area / (self.heads * self.seqlen_q * self.seqlen_k) if self.area else 0.0

    @cached_property
    def digest(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for part in (np.array(self.kept.shape), self.row_edges, self.col_edges):
            digest.update(np.ascontiguousarray(part, "<i8").tobytes())
        digest.update(np.packbits(self.kept).tobytes())
        if self.band is not None:
            digest.update(self.band.digest.encode())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockMask) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        size = f"{plural(self.heads, 'head')}, {self.seqlen_q}x{self.seqlen_k}"
        return f"<BlockMask {self.name or 'unnamed'} {size}, density {self.density:.4f}>"

    def dense(self) -> NDArray[np.bool_]:
        """[heads, seqlen_q, seqlen_k] bools, for tests and small references."""
        rows = np.repeat(np.arange(len(self.row_edges) - 1), np.diff(self.row_edges))
        keys = np.repeat(np.arange(len(self.col_edges) - 1), np.diff(self.col_edges))
        seen = self.kept[:, rows][:, :, keys]
        return seen if self.band is None else seen & self.band.dense()

    def head(self, head: int) -> Mask:
        """The pattern of one KV head as a static mask."""
        edge = np.diff(np.pad(self.kept[head].astype(np.int8), ((0, 0), (1, 1))), axis=1)
        block, first = np.nonzero(edge == 1)
        _, last = np.nonzero(edge == -1)
        lo, hi = self.col_edges[first], self.col_edges[last]
        if self.band is None:
            return Mask.of(self.seqlen_q, self.seqlen_k, bands((self.row_edges[block], self.row_edges[block + 1], lo, 0, hi, 0)))
        pieces = split_rows(self.band.bands, self.row_edges[1:-1])  # each lies in one row block
        run, piece = spread(*(np.searchsorted(pieces.q0, self.row_edges[block + end]) for end in (0, 1)))
        return Mask.of(self.seqlen_q, self.seqlen_k, clipped(pieces.take(piece), lo[run], hi[run]))

    def rows(self, ranges: Sequence[Range]) -> BlockMask:
        edges, alive = _cut(self.row_edges, *as_ranges(ranges, self.seqlen_q, "row"))
        return BlockMask(edges, self.col_edges, self.kept[:, alive], band=self.band and self.band.rows(ranges))

    def cols(self, ranges: Sequence[Range]) -> BlockMask:
        edges, alive = _cut(self.col_edges, *as_ranges(ranges, self.seqlen_k, "key"))
        return BlockMask(self.row_edges, edges, self.kept[:, :, alive], band=self.band and self.band.cols(ranges))

    def take_heads(self, heads: Sequence[int]) -> BlockMask:
        return BlockMask(self.row_edges, self.col_edges, self.kept[list(heads)], band=self.band)

    def transpose(self) -> BlockMask:
        return BlockMask(self.col_edges, self.row_edges, self.kept.transpose(0, 2, 1), band=self.band and self.band.transpose())

    @constant
    def __and__(self, other: object) -> BlockMask:
        """The pairs that the blocks and a band mask both show."""
        if isinstance(other, BlockMask):
            raise Refused(f"{ONLY_BANDS}; this is & of two block patterns.")
        if not isinstance(other, Mask):
            raise BadInput(f"{ONLY_BANDS}, not with {type(other).__name__}.")
        band = other if self.band is None else self.band & other
        return BlockMask(self.row_edges, self.col_edges, self.kept, band=band, source=self.source)

    __rand__ = __and__

    def _refuse(self, other: object = None) -> BlockMask:
        raise Refused(f"{ONLY_BANDS}, not |, - or ~.")

    __or__ = __ror__ = __sub__ = __rsub__ = __invert__ = _refuse

    def pair_areas(self, row_shards: Shards, col_shards: Shards) -> Ints:
        """The area, over all heads, that each shard of queries sees in each shard of keys."""
        if self.band is not None:
            areas = [self.head(head).pair_areas(row_shards, col_shards) for head in range(self.heads)]
            return np.asarray(np.sum(areas, axis=0), np.int64)
        rows = _shares(self.row_edges, row_shards, self.seqlen_q, "row")
        keys = _shares(self.col_edges, col_shards, self.seqlen_k, "key")
        return np.asarray(rows @ self.kept.sum(0) @ keys.T, np.int64)

    def tiles(self, rows_per_tile: int, keys_per_tile: int) -> BlockTiles:
        return BlockTiles(self, rows_per_tile, keys_per_tile)

    def mask_mod(self, device: str = "cpu", heads: int | None = None) -> Callable[..., torch.Tensor]:
        """FlexAttention's function (batch, head, query, key) -> bool for so many query heads; by default one per pattern."""
        from longca.masks import flex  # it imports this file

        return flex.blocks_mod(self, heads or self.heads, device)

    def block_mask(self, device: str = "cpu", block_size: int = 128, heads: int | None = None) -> Any:
        """FlexAttention's BlockMask for so many query heads; by default one per pattern."""
        from longca.masks import flex

        return flex.block_mask(self, self.mask_mod(device, heads), device, block_size, heads or self.heads)


class BlockTiles:
    """Full and partial tiles of every head: the lists of head h follow those of head h-1."""

    def __init__(self, mask: BlockMask, rows_per_tile: int, keys_per_tile: int) -> None:
        self._heads = [mask.head(head).tiles(rows_per_tile, keys_per_tile) for head in range(mask.heads)]
        self.full = sum(tiles.full for tiles in self._heads)
        self.partial = sum(tiles.partial for tiles in self._heads)

    def by_row(self) -> TileLists:
        return _stacked([tiles.by_row() for tiles in self._heads])

    def by_col(self) -> TileLists:
        return _stacked([tiles.by_col() for tiles in self._heads])


def _stacked(lists: list[TileLists]) -> TileLists:
    def joined(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
        return np.concatenate([np.zeros(0, np.int32), *parts])

    def pointers(parts: list[NDArray[np.int32]]) -> NDArray[np.int32]:
        return np.append(0, np.cumsum(joined([np.diff(part) for part in parts]))).astype(np.int32)

    return TileLists(
        pointers([head.full_ptr for head in lists]),
        joined([head.full_idx for head in lists]),
        pointers([head.partial_ptr for head in lists]),
        joined([head.partial_idx for head in lists]),
    )


def _cut(edges: Ints, start: Ints, end: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    moved = tokens_before(start, end, edges)
    alive = np.diff(moved) > 0
    return np.append(0, moved[1:][alive]), alive


def _shares(edges: Ints, shards: Shards, limit: int, what: str) -> Ints:
    """How many tokens of each block each shard holds, [shards, blocks]."""
    counts = [np.diff(tokens_before(*as_ranges(shard, limit, what), edges)) for shard in shards]
    return np.array(counts, np.int64).reshape(len(counts), len(edges) - 1)
