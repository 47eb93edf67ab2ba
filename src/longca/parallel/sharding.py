"""Which rank owns which tokens. Every function here depends on the mask and the number of ranks alone, so all ranks agree."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from longca.masks import AnyMask, BlockMask
from longca.masks.bands import Ints
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.grid import Grid
from longca.parallel.ranges import Shards, as_array, count, joined, part


def contiguous(length: int, ranks: int) -> Shards:
    """One range per rank; lengths differ by at most one."""
    edges = [length * rank // ranks for rank in range(ranks + 1)]
    return tuple(joined(as_array([(edges[rank], edges[rank + 1])])) for rank in range(ranks))


@lru_cache(maxsize=16)
def zigzag(mask: AnyMask, ranks: int) -> Shards:
    """Each document in 2R chunks, of which rank r owns the r-th from the front and the r-th from behind: causal work is even.

    What a document has left over goes to the chunks in turn, document after document, so that many short documents fill all ranks.
    Of a block pattern whole row blocks are dealt out: kernels for uniform blocks take no block that is cut.
    """
    edges = mask.row_edges if isinstance(mask, BlockMask) else None
    lengths = np.asarray(mask.documents or (mask.seqlen_q if edges is None else len(edges) - 1,), np.int64)
    dealt = zigzag_documents(np.cumsum(lengths) - lengths, lengths, ranks)
    return dealt if edges is None else tuple(edges[shard] for shard in dealt)  # so far blocks were counted


def zigzag_documents(start: Ints, length: Ints, ranks: int) -> Shards:
    """The same of some documents of a sequence, given by where they begin and how long they are."""
    chunks = 2 * ranks
    extra = length % chunks
    turn = (np.cumsum(extra) - extra) % chunks
    longer = (np.arange(chunks) - turn[:, None]) % chunks < extra[:, None]
    size = length[:, None] // chunks + longer
    end = start[:, None] + np.cumsum(size, 1)
    pieces = np.stack([end - size, end], 2)
    return tuple(joined(np.concatenate([pieces[:, rank], pieces[:, chunks - 1 - rank]])) for rank in range(ranks))


@once_for_all_ranks
def split_each(shards: Shards, parts: int) -> Shards:
    """Every shard cut into equal parts, in order: what the members of a head-splitting group own. Part u of shard r is rank r*parts + u."""
    if parts == 1:
        return shards
    pieces = []
    for shard in shards:
        edges = [count(shard) * u // parts for u in range(parts + 1)]
        pieces += [part(shard, edges[u], edges[u + 1]) for u in range(parts)]
    return tuple(pieces)


def rings_of(shards: Shards, grid: Grid) -> tuple[Shards, list[Shards]]:
    """The queries that each place of a ring has, the same in every ring, and the keys of the places of each ring."""
    return (shards, [shards]) if grid.heads == 1 else _rings_of(shards, grid.heads, grid.ring)


@once_for_all_ranks
def _rings_of(shards: Shards, heads: int, ring: int) -> tuple[Shards, list[Shards]]:
    grid = Grid(heads, ring)
    groups = [grid.head_group(place * heads) for place in range(ring)]
    rows = tuple(joined(np.concatenate([shards[rank] for rank in group])) for group in groups)
    return rows, [tuple(shards[group[number]] for group in groups) for number in range(heads)]
