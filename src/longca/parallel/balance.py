"""How magi gives tokens to ranks: as many tokens for each, as much work for each, and few keys that travel.

The tokens lie on a circle. Averaged over all starts, an arc of 1/N of the tokens has 1/N of the work, and its work changes by one row at a
time as it moves; so there is always an arc whose work is right to within one row. It becomes a rank's share, the circle is closed,
and the next rank takes an arc of what is left. That makes at most two cuts a rank. Of the arcs that fit, the one that needs the fewest
keys of others, and whose keys the fewest others need, is taken: under a window arcs lie side by side, under a causal mask they become a
zigzag, and documents stay whole where the work allows it.

Everything is decided with integers from the mask and the number of ranks, so all ranks find the same shares.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from longca.masks import Mask
from longca.masks.bands import Ints, split_rows, spread
from longca.parallel.ranges import Ranges, Shards, as_array, joined, part
from longca.parallel.sharding import contiguous

SLACK = 0.03  # by how much the work of a rank may exceed the mean where that saves transfers
CHUNK = 128  # arcs begin at multiples of this where their work allows it
MARKS_PER_RANK, MOST_MARKS = 8, 256  # places at which arcs may begin or end; the ends of the largest bands come on top
LARGEST_BANDS = 128
MOST_CANDIDATES = 48  # arcs whose transfers are compared for each rank


def row_work(mask: Mask) -> Ints:
    """The visible pairs of all rows before each row: seqlen_q + 1 numbers."""
    bands, length = mask.bands, mask.seqlen_q
    change, slope = np.zeros(length + 1, np.int64), np.zeros(length + 1, np.int64)
    grow, width = bands.b - bands.a, bands.hi - bands.lo
    np.add.at(change, bands.q0, width)
    np.add.at(change, bands.q1, -(width + grow * (bands.height - 1)))
    tall = bands.height > 1
    np.add.at(slope, bands.q0[tall] + 1, grow[tall])
    np.add.at(slope, bands.q1[tall], -grow[tall])
    change += np.cumsum(slope)
    before = np.zeros(length + 1, np.int64)
    np.cumsum(np.cumsum(change[:-1]), out=before[1:])
    return before


def least_imbalance(work: Ints, ranks: int) -> float:
    """A bound from below on the work of the heaviest rank over the mean, from `row_work`: of the j*N + 1 heaviest rows, some rank has
    j + 1 at least, and beside them as many other rows as make its tokens equal to those of the others."""
    row, total = np.diff(work), int(work[-1])
    if int(row.max(initial=0)) * ranks <= total // 64:
        return 1.0
    heavy = np.sort(row[row * ranks > total // 64])[::-1]  # lighter rows prove nothing over 1.02
    turns = np.arange(0, len(heavy), ranks)
    number = turns // ranks + 1
    most = int((heavy[turns] * number + np.maximum(0, len(row) // ranks - number) * row.min()).max(initial=0))
    return max(1.0, most * ranks / total)


def balanced(mask: Mask, ranks: int, slack: float = SLACK, work: Ints | None = None) -> Shards:
    """Equal tokens for each rank, and work within `slack` of the mean unless single rows are heavier, with few keys to send.

    `work` is that of all layers, as `row_work` gives it, where several masks share the tokens.
    Ranks are numbered in the order of their first tokens, so that ranks that exchange much are near each other.
    """
    plain, work = contiguous(mask.seqlen_q, ranks), row_work(mask) if work is None else work
    even = int(work[-1]) // ranks
    most = int(even * max(1 + slack, least_imbalance(work, ranks)))
    if len(work) <= 2 * ranks or max(int(np.diff(work[share]).max(initial=0)) for share in plain) <= most:
        return plain  # the fewest cuts, and the work is even already
    view, circle, shares = View.of(mask, ranks), Circle(as_array([(0, mask.seqlen_q)]), work), list[Ranges]()
    for left in range(ranks, 1, -1):
        tokens = circle.length // left
        share, rest = circle.cut(_best_start(circle, view, tokens, left, even, most), tokens)
        shares.append(share)
        circle = Circle(rest, work)
    shares.append(circle.ranges)
    return tuple(sorted(shares, key=lambda share: int(share[0, 0])))


@lru_cache(maxsize=16)
def balanced_for(mask: Mask, ranks: int) -> Shards:
    """`balanced` with its defaults; plans that differ in options alone share the result."""
    return balanced(mask, ranks)


class Circle:
    """The tokens that are not given away yet, in order, the last beside the first."""

    def __init__(self, ranges: Ranges, work: Ints) -> None:
        self.ranges, self.start, self.end = ranges, ranges[:, 0], ranges[:, 1]
        self.first = np.append(0, np.cumsum(self.end - self.start))  # of each range, as a place on the circle
        self.length = int(self.first[-1])
        self._work = work
        self._before = np.append(0, np.cumsum(work[self.end] - work[self.start]))
        self.work = int(self._before[-1])

    def places(self, tokens: Ints) -> Ints:
        """The places of those of the sorted tokens that are still there."""
        index = np.searchsorted(self.start, tokens, side="right") - 1
        there = (index >= 0) & (tokens < self.end[index])
        return np.asarray((self.first[index] + tokens - self.start[index])[there], np.int64)

    def work_before(self, place: Ints) -> Ints:
        turns, place = np.divmod(place, self.length)
        index = np.searchsorted(self.first, place, side="right") - 1
        token = self.start[index] + place - self.first[index]
        return np.asarray(turns * self.work + self._before[index] + self._work[token] - self._work[self.start[index]], np.int64)

    def work_of(self, start: Ints, tokens: int) -> Ints:
        """The work of the arcs of so many tokens from each start."""
        before, behind = self.work_before(np.stack([start, start + tokens]))
        return np.asarray(behind - before, np.int64)

    def cut(self, start: int, tokens: int) -> tuple[Ranges, Ranges]:
        """The arc of so many tokens from a place on, and what is left; both as sorted ranges."""
        over = max(0, start + tokens - self.length)
        arc = [part(self.ranges, 0, over), part(self.ranges, start, start + tokens)]
        rest = [part(self.ranges, over, start), part(self.ranges, start + tokens, self.length)]
        return joined(np.concatenate(arc)), joined(np.concatenate(rest))

    def pieces(self, start: Ints, tokens: int) -> tuple[Ints, Ints, Ints]:
        """The ranges that each arc is made of: (which arc, first token, behind the last token), arc after arc."""
        doubled = np.append(self.first[:-1], self.first + self.length)
        which, piece = spread(np.searchsorted(doubled, start, side="right") - 1, np.searchsorted(doubled, start + tokens, side="left"))
        low = np.maximum(start[which], doubled[piece]) - doubled[piece]
        high = np.minimum(start[which] + tokens, doubled[piece + 1]) - doubled[piece]
        real = self.start[piece % len(self.start)]
        return which, real + low, real + high


@dataclass(frozen=True)
class View:
    """Which parts of the sequence see which, between marks that lie close where the mask changes."""

    marks: Ints
    viewers: NDArray[np.int16]  # [row part, key part], summed over all row parts before: how many of them see it
    sizes: Ints

    @classmethod
    def of(cls, mask: Mask, ranks: int) -> View:
        marks = _marks(mask, ranks)
        parts = len(marks) - 1
        pieces = split_rows(mask.bands, marks)
        row = np.searchsorted(marks, pieces.q0, side="right") - 1
        first = np.searchsorted(marks, pieces.lo, side="right") - 1
        last = np.searchsorted(marks, pieces.hi_last, side="left")
        sees = np.zeros(parts * (parts + 1), np.int32)
        np.add.at(sees, row * (parts + 1) + first, 1)
        np.add.at(sees, row * (parts + 1) + last, -1)
        seen = np.cumsum(sees.reshape(parts, parts + 1)[:, :-1], axis=1) > 0
        viewers = np.zeros((parts + 1, parts), np.int16)
        np.cumsum(seen, axis=0, out=viewers[1:])
        return cls(marks, viewers, np.diff(marks))

    def transfers(self, circle: Circle, start: Ints, tokens: int) -> Ints:
        """For each arc, the keys that its rows see and the keys in it that other rows see, counted by parts."""
        which, low, high = circle.pieces(start, tokens)
        first, behind = np.searchsorted(self.marks, low, side="right") - 1, np.searchsorted(self.marks, high, side="left")
        turns = np.flatnonzero(np.append(True, which[1:] != which[:-1]))
        inside = np.add.reduceat(self.viewers[behind] - self.viewers[first], turns, axis=0)
        seen = (inside > 0) @ self.sizes
        wanted = np.zeros((len(start), len(self.sizes) + 1), np.int64)
        np.cumsum((inside < self.viewers[-1]) * self.sizes, axis=1, out=wanted[:, 1:])
        given = np.add.reduceat(wanted[which, behind] - wanted[which, first], turns)
        return np.asarray(seen + given, np.int64)


def _marks(mask: Mask, ranks: int) -> Ints:
    """Places at equal distances, and where the largest bands begin and end."""
    length, bands = mask.seqlen_q, mask.bands
    number = min(MARKS_PER_RANK * ranks, MOST_MARKS)
    even = np.arange(number) * length // number
    largest = np.argsort(-bands.height, kind="stable")[:LARGEST_BANDS]
    ends = np.concatenate([bands.q0[largest], bands.q1[largest], bands.lo[largest], bands.hi_last[largest]])
    return np.unique(np.concatenate([even // CHUNK * CHUNK if length >= CHUNK * number else even, ends, [0, length]]))


def _best_start(circle: Circle, view: View, tokens: int, ranks: int, even: int, most: int) -> int:
    """Where the next rank's arc begins."""
    mean = circle.work // ranks
    places = np.concatenate([circle.places(view.marks[:-1]), circle.first[:-1]])
    start = np.unique(np.concatenate([places, (places - tokens) % circle.length]))
    work = circle.work_of(start, tokens)
    found = _even_starts(circle, start, work, tokens, mean, (most - even) // 4)
    start = np.concatenate([start, found])
    work = np.append(work, circle.work_of(found, tokens))
    least = max(2 * mean - most, circle.work - (ranks - 1) * ((even + most) // 2))  # what is left must be as even
    fits = np.flatnonzero((work <= most) & (work >= least))
    if not len(fits):
        return int(start[np.argmin(np.abs(work - mean))])
    if len(fits) > MOST_CANDIDATES:
        fits = fits[np.arange(MOST_CANDIDATES) * len(fits) // MOST_CANDIDATES]
    start, work = start[fits], work[fits]
    cuts = (~np.isin(start, circle.first)).astype(np.int64) + ~np.isin((start + tokens) % circle.length, circle.first % circle.length)
    score = view.transfers(circle, start, tokens) + cuts * (tokens // 8)
    return int(start[np.lexsort((start, np.abs(work - mean), score))[0]])


def _even_starts(circle: Circle, start: Ints, work: Ints, tokens: int, mean: int, near: int) -> Ints:
    """Starts between neighbours of which one arc has more and the other less work than the mean, found by halving: multiples of the chunk,
    or of smaller chunks until the work of the arcs before and behind differs by less than `near`."""
    more = work > mean
    crossing = np.flatnonzero(more != np.roll(more, -1))
    if len(crossing) > MOST_CANDIDATES // 2:
        crossing = crossing[np.arange(MOST_CANDIDATES // 2) * len(crossing) // (MOST_CANDIDATES // 2)]
    low, high, rising = start[crossing], np.append(start[1:], start[0] + circle.length)[crossing], ~more[crossing]
    chunk = CHUNK
    while len(low):
        if (high - low).max() <= chunk:
            if chunk == 1 or np.abs(circle.work_of(high, tokens) - circle.work_of(low, tokens)).max() < near:
                break
            chunk //= 4 if chunk > 2 else 2
        middle = (low + high) // 2
        middle = np.where(middle // chunk * chunk > low, middle // chunk * chunk, middle)
        before = (circle.work_of(middle, tokens) <= mean) == rising
        low, high = np.where(before, middle, low), np.where(before, high, middle)
    return np.unique(np.concatenate([low, high]) % circle.length)
