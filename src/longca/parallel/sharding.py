"""Which rank owns which tokens. Every function here depends on the mask and the number of ranks alone, so all ranks agree."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from longca.masks import AnyMask, BlockMask
from longca.parallel.ranges import Ranges, Shards, as_array, count, joined, part

CHUNK = 2048  # tokens that stay together when chunks are balanced
CHUNKS_PER_RANK = 4  # at least so many, else chunks are halved


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
    chunks = 2 * ranks
    extra = lengths % chunks
    turn = (np.cumsum(extra) - extra) % chunks
    longer = (np.arange(chunks) - turn[:, None]) % chunks < extra[:, None]
    size = lengths[:, None] // chunks + longer
    end = np.cumsum(size.ravel()).reshape(size.shape)
    pieces = np.stack([end - size, end], 2)
    if edges is not None:  # so far blocks were counted
        pieces = edges[pieces]
    return tuple(joined(np.concatenate([pieces[:, rank], pieces[:, chunks - 1 - rank]])) for rank in range(ranks))


def balanced(mask: AnyMask, ranks: int, chunk: int = CHUNK) -> Shards:
    """Chunks given to ranks so that the largest area is small: the heaviest first, each to the lightest rank that has room."""
    while chunk > 1 and -(-mask.seqlen_q // chunk) < CHUNKS_PER_RANK * ranks:
        chunk //= 2
    starts = np.arange(0, mask.seqlen_q, chunk)
    chunks = np.stack([starts, np.minimum(starts + chunk, mask.seqlen_q)], 1)
    weight = mask.transpose().pair_areas([[(0, mask.seqlen_k)]], chunks[:, None])[0]  # type: ignore[arg-type]  # arrays are ranges too
    most = [len(chunks) // ranks + (rank < len(chunks) % ranks) for rank in range(ranks)]
    owned: list[list[int]] = [[] for _ in range(ranks)]
    lightest = [(0, rank) for rank in range(ranks) if most[rank]]
    for index in np.argsort(-weight, kind="stable").tolist():
        area, rank = heapq.heappop(lightest)
        owned[rank].append(index)
        if len(owned[rank]) < most[rank]:
            heapq.heappush(lightest, (area + int(weight[index]), rank))
    return tuple(joined(chunks[sorted(indices)]) for indices in owned)


def split_each(shards: Sequence[Ranges], parts: int) -> Shards:
    """Every shard cut into equal parts, in order: what the members of a head-splitting group own. Part u of shard r is rank r*parts + u."""
    pieces = []
    for shard in shards:
        edges = [count(shard) * u // parts for u in range(parts + 1)]
        pieces += [part(shard, edges[u], edges[u + 1]) for u in range(parts)]
    return tuple(pieces)
