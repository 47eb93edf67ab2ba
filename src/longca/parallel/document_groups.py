"""Which ranks share which documents: groups whose sizes are powers of two, or all ranks, so that all ranks have the same work.

Groups of one size begin at multiples of it, so they are disjoint: they are one round. A rank takes part in one group of each size at most.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from longca.masks import Mask
from longca.masks.bands import Ints
from longca.parallel.ranges import Ranges, Shards
from longca.parallel.sharding import zigzag_documents

SLACK = 0.05  # the share over the mean that a rank may have before a document gets a larger group
ATTEMPTS = 8  # to find groups in which all ranks end together

_Groups = dict[tuple[int, int], list[int]]  # the documents of each group (size, first rank)


@dataclass(frozen=True)
class Group:
    """Ranks first .. first+size-1 and what each of them owns of the group's documents."""

    first: int
    size: int
    documents: tuple[int, ...]
    shards: Shards

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.size)


def documents_of(mask: Mask) -> tuple[Ranges, Ints]:
    """The finest cut of the tokens into ranges that see nothing of each other, and the visible pairs of each."""
    bands = mask.bands
    start, end = np.minimum(bands.q0, bands.lo), np.maximum(bands.q1, bands.hi_last)
    order = np.argsort(start, kind="stable")
    reach = np.maximum.accumulate(end[order])
    opens = np.append(True, start[order][1:] >= reach[:-1])[: len(order)]
    edges = np.unique(np.concatenate([[0], start[order][opens], reach[np.append(opens[1:], True)[: len(order)]], [mask.seqlen_q]]))
    height, width = bands.height, bands.hi - bands.lo
    pairs = height * width + (bands.b - bands.a) * (height * (height - 1) // 2)
    work = np.zeros(max(0, len(edges) - 1), np.int64)
    np.add.at(work, np.searchsorted(edges, bands.q0, side="right") - 1, pairs)
    return np.stack([edges[:-1], edges[1:]], 1), work


def groups_of(mask: Mask, ranks: int) -> tuple[Group, ...]:
    """Returns the groups in the order of their rounds: large groups first, so that ranks that wait for each other start together."""
    return _groups(mask, mask.documents or (mask.seqlen_q,), ranks)


@lru_cache(maxsize=16)
def _groups(mask: Mask, named: tuple[int, ...], ranks: int) -> tuple[Group, ...]:
    """`named` are the lengths of the mask's documents: one that sees another is dealt out by itself all the same, as in a plain ring."""
    documents, work = documents_of(mask)
    edges = np.unique(np.concatenate([documents.ravel(), np.cumsum(named)]))
    parts = np.stack([edges[:-1], edges[1:]], 1)
    whole = np.searchsorted(documents[:, 0], parts[:, 0], side="right") - 1  # the document of each part
    groups = []
    for (size, first), numbers in _assigned(work, documents[:, 1] - documents[:, 0], ranks).items():
        own = parts[np.isin(whole, numbers)]
        groups.append(Group(first, size, tuple(sorted(numbers)), zigzag_documents(own[:, 0], own[:, 1] - own[:, 0], size)))
    return tuple(groups)


def _assigned(work: Ints, length: Ints, ranks: int) -> dict[tuple[int, int], list[int]]:
    """The documents of each group (size, first rank), the largest group first.

    A document for which no group has time although all ranks together have goes to all ranks, and the others are assigned once more. Of
    all attempts, the one whose busiest rank has the least work counts.
    """
    mean = int(work.sum()) / ranks
    order = np.lexsort((-length, -work)).tolist()
    long = [number for number in order if work[number] > SLACK * mean]
    for_all: set[int] = set()
    best: tuple[float, _Groups] | None = None
    for _ in range(ATTEMPTS):
        busy, groups, late = _long_assigned(long, work, ranks, for_all)
        if best is None or busy.max() < best[0]:
            best = float(busy.max()), _with_short(order[len(long) :], work, length, busy, groups)
        if not late:
            break
        for_all |= late
    assert best is not None
    return dict(sorted(best[1].items(), key=lambda item: (-item[0][0], item[0][1])))


def _long_assigned(long: list[int], work: Ints, ranks: int, for_all: set[int]) -> tuple[NDArray[np.float64], _Groups, set[int]]:
    """The work of each rank, its groups, and the documents that end late. The document with the most work is the first to get a group:
    the smallest one with time for it."""
    sizes = [*(1 << power for power in range(ranks.bit_length()) if 1 << power < ranks), ranks]
    most = (1 + SLACK) * int(work.sum()) / ranks
    busy = np.full(ranks, sum(int(work[number]) for number in for_all) / ranks)
    groups: _Groups = {(ranks, 0): sorted(for_all)} if for_all else {}
    late = set()
    for number in long:
        if number in for_all:
            continue
        ends = []  # when it would end in the least busy group of each size
        for size in sizes:
            starts = busy[: ranks // size * size].reshape(-1, size).max(1)
            place = int(starts.argmin())
            ends.append((float(starts[place]) + work[number] / size, size, place * size))
        end, size, first = next((ending for ending in ends if ending[0] <= most), min(ends))
        if end > most:
            late.add(number)
        busy[first : first + size] = end
        groups.setdefault((size, first), []).append(number)
    return busy, groups, late


def _with_short(short: list[int], work: Ints, length: Ints, busy: NDArray[np.float64], groups: _Groups) -> _Groups:
    """Each short document on the least busy rank alone. That rank has at most the mean, so it ends in time."""
    least = [(float(time), 0, rank) for rank, time in enumerate(busy)]
    heapq.heapify(least)
    for number in short:
        time, tokens, rank = heapq.heappop(least)
        heapq.heappush(least, (time + int(work[number]), tokens + int(length[number]), rank))
        groups.setdefault((1, rank), []).append(number)
    return groups
