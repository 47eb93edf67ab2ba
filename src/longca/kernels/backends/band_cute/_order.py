"""How many heads a thread block takes, and in which order thread blocks begin: from the lists of query tiles of each key tile alone.

Blocks that run at the same time should read the same queries, so that q, dout and the sums of dq stay in the L2 cache; and the longest
blocks should begin first, so that none is left over at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longca.kernels.backends.band_cute._layout import TILE_BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from longca.masks.tiles import TileLists

    Ints = NDArray[np.int64]

MULTIPROCESSORS = 132  # of an H200
EVEN = 0.75  # evenness from which blocks keep step
LONGEST_SHARE = 0.5  # of the whole time, that a thread block of an even mask may take
UNEVEN_SHARES = {1: 0.5, 2: 0.5, 3: 0.1, 4: 0.1}  # the same for each number of heads that blocks of an uneven mask may take


def query_tiles(lists: TileLists) -> Ints:
    """Returns the number of query tiles of each key tile."""
    return (np.diff(lists.full_ptr) + np.diff(lists.partial_ptr)).astype(np.int64)


def documents(lists: TileLists) -> Ints:
    """Returns a number for each key tile. Neighbours with the same number share more than half of their query tiles, as those of one
    document or of one window do."""
    count = query_tiles(lists)
    begins = 2 * shared_with_next(lists) <= np.maximum(count[:-1], count[1:])
    return np.concatenate([[0], np.cumsum(begins)])


def shared_with_next(lists: TileLists) -> Ints:
    """Returns how many query tiles each key tile shares with the next one; the last key tile is left out.

    The lists are unions of few runs. A sweep over the ends of the runs of both neighbours counts the tiles that are in two runs.
    """
    pairs = len(lists.full_ptr) - 2
    both = [_runs(lists.full_ptr, lists.full_idx), _runs(lists.partial_ptr, lists.partial_idx)]
    key, start, end = (np.concatenate(columns) for columns in zip(*both, strict=True))
    pair = np.concatenate([key, key - 1, key, key - 1])  # a key tile is the first of one pair and the second of another
    position = np.concatenate([start, start, end, end])
    change = np.repeat([1, -1], 2 * len(key))
    order = np.lexsort((position, pair))
    pair, position, level = pair[order], position[order], np.cumsum(change[order])
    size = np.diff(position, append=0)
    counted = (level == 2) & (pair >= 0) & (pair < pairs)
    return np.bincount(pair[counted], weights=size[counted], minlength=pairs).astype(np.int64)


def _runs(ptr: NDArray[np.int32], index: NDArray[np.int32]) -> tuple[Ints, Ints, Ints]:
    """Returns the runs of neighbouring tiles in lists as (list, start, end)."""
    is_first = np.ones(len(index), np.bool_)
    np.not_equal(index[1:], index[:-1] + 1, out=is_first[1:])
    is_first[ptr[:-1][np.diff(ptr) > 0]] = True
    first = np.flatnonzero(is_first)
    last = np.append(first, len(index))[1:] - 1
    return np.searchsorted(ptr, first, "right") - 1, index[first].astype(np.int64), index[last].astype(np.int64) + 1


def longest_in_document(count: Ints, document: Ints) -> Ints:
    """Returns for each key tile the most query tiles that a key tile of its document has."""
    longest = np.zeros(len(count), np.int64)
    np.maximum.at(longest, document, count)
    return longest[document]


def evenness(count: Ints, document: Ints) -> float:
    """Returns the query tiles of all key tiles over those that they would have if all were as long as the longest of their document.

    Blocks of an even mask keep step. Those of an uneven one drift apart to different heads.
    """
    return float(count.sum()) / max(1, int(longest_in_document(count, document).sum()))


def heads_to_join(count: Ints, document: Ints, heads_q: int, group: int) -> int:
    """Returns how many query heads of one KV head a thread block takes: as many as leave the longest block short beside the whole time,
    and few where blocks drift apart: q, dout and the sums of dq of many heads do not fit the L2 cache. Shares were fitted to times of
    2, 4 and 8 heads at 8K and 32K tokens on an H200."""
    whole, longest = float(count.sum()) * heads_q / MULTIPROCESSORS, int(count.max(initial=0))
    is_even = evenness(count, document) >= EVEN
    shares = dict.fromkeys(range(1, group + 1), LONGEST_SHARE) if is_even else UNEVEN_SHARES
    return max((heads for heads, share in shares.items() if group % heads == 0 and heads * longest <= share * whole), default=1)


def documents_first(count: Ints, document: Ints, heads: int) -> NDArray[np.int32]:
    """Returns the thread blocks in the order in which they begin, as key tile + 2^20 * head: the document with the longest list of query
    tiles first, there one head after the other, and there the key tiles in order."""
    assert len(count) <= 1 << TILE_BITS
    assert heads <= 1 << (31 - TILE_BITS)
    tile, head = (numbers.ravel() for numbers in np.meshgrid(np.arange(len(count)), np.arange(heads)))
    order = np.lexsort((tile, head, document[tile], -longest_in_document(count, document)[tile]))
    return np.asarray(tile + (head << TILE_BITS), np.int32)[order]
