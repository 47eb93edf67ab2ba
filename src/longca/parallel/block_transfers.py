"""Which keys the row blocks of every rank selected, KV head by KV head.

A pattern per KV head asks for a key of one head and not of another. So what travels is a key of one head: token t of head h is number
h * stride + t, and casts of numbered keys serve both. One pattern for all heads needs one number for all of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from longca.masks import BlockMask
from longca.masks.bands import Ints
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.ranges import Ranges, Shards, joined
from longca.parallel.transfers import Needs, Table


def stride_of(mask: BlockMask) -> int:
    """How far the keys of a head lie from those of the next: one number between two heads belongs to none, so that no range spans both."""
    return mask.seqlen_k + 1


def numbered(ranges: Ranges, mask: BlockMask) -> Ranges:
    """These tokens in all patterns, head after head."""
    return np.concatenate([ranges + head * stride_of(mask) for head in range(mask.heads)])


def heads_and_tokens(keys: Ranges, mask: BlockMask) -> tuple[Ints, Ranges]:
    """Of ranges of numbered keys the head, and the tokens."""
    head = keys[:, 0] // stride_of(mask)
    return head, keys - (head * stride_of(mask))[:, None]


@once_for_all_ranks
def selected_by(mask: BlockMask, shards: Shards) -> NDArray[np.bool_]:
    """[ranks, patterns, key blocks]: what at least one row of each rank selected."""
    return np.stack([mask.rows(shard).kept.any(1) for shard in shards])  # type: ignore[arg-type]  # arrays are ranges too


class BlockNeeds(Needs):
    """`Needs` of a block pattern: whole key blocks, as numbered keys."""

    def __init__(self, mask: BlockMask, rows: Shards, node: int = 1, owners: Shards | None = None) -> None:
        self.pattern, self.rows, self.ranks = mask, rows, len(rows)
        self.shards = tuple(numbered(shard, mask) for shard in rows)
        selected = np.logical_or.reduceat(selected_by(mask, rows), np.arange(0, self.ranks, node))
        edge = np.diff(np.pad(selected.astype(np.int8), ((0, 0), (0, 0), (1, 1))))
        viewer, head, first = np.nonzero(edge == 1)
        last = np.nonzero(edge == -1)[2]
        seen = np.stack([mask.col_edges[first], mask.col_edges[last]], 1) + (head * stride_of(mask))[:, None]
        Table.__init__(self, viewer, seen, owners or self.shards, len(selected))

    def seen_by(self, node: int = 1, owners: Shards | None = None) -> BlockNeeds:
        return BlockNeeds(self.pattern, self.rows, node, owners)

    def keys_of(self, held: list[Ranges]) -> Ranges:
        """The tokens of which some head is held."""
        return joined(heads_and_tokens(np.concatenate(held), self.pattern)[1])
