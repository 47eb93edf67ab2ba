"""How block_cast gives row blocks to ranks: as many for each, as much work for each, and few keys for the busiest rank."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from longca.masks import BlockMask
from longca.masks.bands import Ints
from longca.parallel.balance import SLACK, Circle
from longca.parallel.block_transfers import BlockNeeds
from longca.parallel.ranges import Ranges, Shards, as_array
from longca.parallel.sharding import contiguous, zigzag


@lru_cache(maxsize=16)
def balanced_blocks(mask: BlockMask, ranks: int) -> Shards:
    """Whole row blocks, as many for each rank to within one: in one run, or in a zigzag, whichever moves fewer keys from or to the
    busiest rank and has work within `SLACK` of the mean. Where neither has, runs of blocks are chosen by their work."""
    edges, work = mask.row_edges, np.append(0, np.cumsum(mask.row_areas))
    even = [
        shards
        for shards in (tuple(edges[share] for share in contiguous(len(edges) - 1, ranks)), zigzag(mask, ranks))
        if max(_work_of(shard, edges, work) for shard in shards) * ranks <= (1 + SLACK) * work[-1]
    ]
    if not even:
        return tuple(edges[share] for share in _arcs(work, ranks))
    return min(even, key=lambda shards: _busiest(mask, shards))


def _work_of(shard: Ranges, edges: Ints, work: Ints) -> int:
    return int(np.diff(work[np.searchsorted(edges, shard)]).sum())


def _busiest(mask: BlockMask, shards: Shards) -> int:
    """The keys that the busiest rank sends, or receives: links carry both at once."""
    sizes = BlockNeeds(mask, shards).sizes
    return int((np.maximum(sizes.sum(0), sizes.sum(1)) - sizes.diagonal()).max())


def _arcs(work: Ints, ranks: int) -> Shards:
    """Blocks in a circle, the last beside the first. The next rank takes the arc whose work is nearest to the mean of what is left; of
    those within `SLACK` of the mean one that makes few cuts."""
    circle, shares = Circle(as_array([(0, len(work) - 1)]), work), list[Ranges]()
    for left in range(ranks, 1, -1):
        length = circle.length // left
        share, rest = circle.cut(_even_start(circle, length, circle.work / left) if length else 0, length)
        shares.append(share)
        circle = Circle(rest, work)
    shares.append(circle.ranges)
    return tuple(sorted(shares, key=lambda share: int(share[0, 0]) if len(share) else len(work)))


def _even_start(circle: Circle, length: int, mean: float) -> int:
    start = np.arange(circle.length)
    off = np.abs(circle.work_of(start, length) - mean)
    cuts = (~np.isin(start, circle.first)).astype(np.int64) + ~np.isin((start + length) % circle.length, circle.first % circle.length)
    return int(np.lexsort((start, off, cuts, off > max(SLACK * mean, float(off.min()))))[0])
