"""Bands: the one way a static mask is written down, and the vectorised operations on many of them at once.

A band covers the rows [q0, q1); in row i its visible keys are [lo + a*(i-q0), hi + b*(i-q0)) with slopes a, b in {0, 1}.
(a, b) = (0, 0) is a rectangle, (0, 1) causal, (1, 0) inverse causal, (1, 1) a diagonal stripe.
Every function here takes and returns arrays over bands; none loops over tokens or bands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.text import short

Ints = NDArray[np.int64]
Range = tuple[int, int]


class Bands(NamedTuple):
    q0: Ints
    q1: Ints
    lo: Ints
    a: Ints
    hi: Ints
    b: Ints

    @property
    def height(self) -> Ints:
        return self.q1 - self.q0

    @property
    def lo_last(self) -> Ints:
        return self.lo + self.a * (self.height - 1)

    @property
    def hi_last(self) -> Ints:
        return self.hi + self.b * (self.height - 1)

    def take(self, which: NDArray[np.generic]) -> Bands:
        return Bands(*(field[which] for field in self))

    def part(self, which: NDArray[np.generic], q0: Ints, q1: Ints) -> Bands:
        """The rows [q0, q1) of the bands `which` (one entry per wanted piece), still in the old row numbers."""
        whole = self.take(which)
        down = q0 - whole.q0
        return Bands(q0, q1, whole.lo + whole.a * down, whole.a, whole.hi + whole.b * down, whole.b)


def bands(*rows: Sequence[int | NDArray[Any]]) -> Bands:
    """Bands from rows (q0, q1, lo, a, hi, b); each entry may be a number or an array over documents."""
    columns = [np.broadcast_arrays(*(np.asarray(field, np.int64) for field in row)) for row in rows]
    joined = (np.concatenate([np.atleast_1d(column[i]) for column in columns]) if columns else np.zeros(0, np.int64) for i in range(6))
    return Bands(*joined)


def read_rows(rows: Any) -> Bands:
    """Returns bands from rows that a user wrote: each is six whole numbers, or arrays over documents. Raises BadInput for others."""
    try:
        table = np.asarray(rows)
    except (TypeError, ValueError):  # rows of different lengths, or with arrays in them
        table = np.zeros(0)
    if table.ndim == 2 and table.shape[1] == 6 and np.issubdtype(table.dtype, np.integer):
        return Bands(*table.T.astype(np.int64))
    if not isinstance(rows, Sequence | np.ndarray) or isinstance(rows, str):
        raise BadInput(f"bands must be rows of six whole numbers (q0, q1, lo, a, hi, b), not {type(rows).__name__}.")
    for row in rows:
        whole = isinstance(row, Sequence | np.ndarray) and len(row) == 6
        if not whole or not all(np.issubdtype(np.asarray(field).dtype, np.integer) for field in row):
            raise BadInput(f"a band must be six whole numbers (q0, q1, lo, a, hi, b), not {short(repr(row), 60)}.")
    return bands(*rows)


def refuse_inverted(given: Bands) -> Bands:
    """The bands; raises BadInput where a range ends before it starts in every row, as a slip of the pen does."""
    widest = np.maximum(given.hi - given.lo, given.hi_last - given.lo_last)
    for first, last, wrong in ((given.q0, given.q1, given.q1 < given.q0), (given.lo, given.hi, (given.q1 > given.q0) & (widest < 0))):
        if wrong.any():
            raise BadInput(f"the band range [{first[wrong][0]}, {last[wrong][0]}) ends before it starts; give the smaller number first.")
    return given


def as_ranges(ranges: Sequence[Range] | NDArray[np.integer], limit: int, what: str) -> tuple[Ints, Ints]:
    """Starts and ends of half-open ranges, checked to be sorted, disjoint and inside [0, limit); empty ones are dropped."""
    table = np.asarray(ranges)
    if table.size and (table.shape[1:] != (2,) or not np.issubdtype(table.dtype, np.integer)):
        raise BadInput(f"{what} ranges must be pairs of whole numbers, such as [(0, 4), (8, 12)], not {short(repr(ranges), 60)}.")
    pairs = table.astype(np.int64).reshape(-1, 2)
    start, end = pairs[:, 0], pairs[:, 1]
    if (end < start).any() or (pairs < 0).any() or (pairs > limit).any():
        raise BadInput(f"{what} ranges must lie inside [0, {limit}) with start <= end; got {pairs.tolist()[:4]}.")
    start, end = start[end > start], end[end > start]
    if (start[1:] < end[:-1]).any():
        raise BadInput(f"{what} ranges must be sorted and must not overlap; sort them and renumber the tensors alike.")
    return start, end


def spread(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """For each i the numbers first[i] .. last[i]-1, one after the other: (which i, the number)."""
    count = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(first)), count)
    offset = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    return which, first[which] + offset


def split_rows(old: Bands, at: Ints) -> Bands:
    """The same bands cut at the rows `at` (sorted, unique), sorted by row and first key."""
    first = np.searchsorted(at, old.q0, side="right")
    last = np.searchsorted(at, old.q1, side="left")
    which, cut = spread(first, last + 1)
    padded = np.append(at, 0)  # the last piece of a band ends at the band's end, not at a cut
    start = np.where(cut == first[which], old.q0[which], padded[cut - 1])
    end = np.where(cut == last[which], old.q1[which], padded[np.minimum(cut, len(at))])
    return in_order(old.part(which, start, end))


def in_order(old: Bands) -> Bands:
    return old.take(np.lexsort((old.lo, old.q0)))


def cut_rows(old: Bands, start: Ints, end: Ints) -> Bands:
    """Keep the rows of the given ranges and number them 0, 1, 2, ..."""
    which, kept = spread(np.searchsorted(end, old.q0, side="right"), np.searchsorted(start, old.q1, side="left"))
    pieces = old.part(which, np.maximum(old.q0[which], start[kept]), np.minimum(old.q1[which], end[kept]))
    before = (np.cumsum(end - start) - (end - start))[kept]
    shift = before - start[kept]
    return pieces._replace(q0=pieces.q0 + shift, q1=pieces.q1 + shift)


def cut_keys(old: Bands, start: Ints, end: Ints) -> Bands:
    """Keep the keys of the given ranges and number them 0, 1, 2, ...; also clips bands that stick out of [0, seqlen_k).

    The new number of key x is how many kept keys lie before it. That never decreases, so an interval stays one interval; it is
    a straight line as long as x does not cross the end of a range, so a band is cut at the rows where one of its ends does.
    """
    edge = np.stack([start, end], 1).ravel()
    edge = edge[np.append(True, edge[1:] != edge[:-1]) & np.append(edge[:-1] != edge[1:], True)] if len(edge) else edge

    def crossings(first_key: Ints, slope: Ints) -> tuple[Ints, Ints]:
        past = first_key + slope * (old.height - 1)
        which, crossed = spread(np.searchsorted(edge, first_key, side="right"), np.searchsorted(edge, past, side="right"))
        return which, old.q0[which] + edge[crossed] - first_key[which]

    lower, upper = crossings(old.lo, old.a), crossings(old.hi, old.b)
    own = np.arange(len(old.q0))
    band = np.concatenate([own, lower[0], upper[0]])
    row = np.concatenate([old.q0, lower[1], upper[1]])
    order = np.lexsort((row, band))
    band, row = band[order], row[order]
    following = np.append(row[1:], 0)
    is_last = np.append(band[1:] != band[:-1], True) if len(band) else np.zeros(0, bool)
    pieces = old.part(band, row, np.where(is_last, old.q1[band], following))
    pieces = pieces.take(pieces.height > 0)

    def renumber(key: Ints) -> tuple[Ints, Ints]:
        index = np.searchsorted(start, key, side="right")  # ranges that start at or before this key
        inside = (index > 0) & (key < np.append(0, end)[index])
        return tokens_before(start, end, key), inside.astype(np.int64)

    lo, lo_moves = renumber(pieces.lo)
    hi, hi_moves = renumber(pieces.hi)
    return without_empty_rows(pieces._replace(lo=lo, a=pieces.a * lo_moves, hi=hi, b=pieces.b * hi_moves))


def tokens_before(start: Ints, end: Ints, points: Ints) -> Ints:
    """How many tokens of sorted ranges [start, end) lie before each point."""
    before = np.append(0, np.cumsum(end - start))
    index = np.searchsorted(start, points, side="right")
    inside = np.minimum(points - np.append(0, start)[index], np.append(0, end - start)[index])
    return np.asarray(before[np.maximum(index - 1, 0)] + np.where(index > 0, inside, 0), np.int64)


def clipped(old: Bands, lo: Ints, hi: Ints) -> Bands:
    """Of each band only the keys [lo, hi), an entry for each band; keys keep their numbers."""
    still = np.zeros_like(old.a)
    return overlap(old, old._replace(lo=lo, a=still, hi=hi, b=still))


def overlap(one: Bands, other: Bands) -> Bands:
    """What each band shares with the band of the other set at its place, which has the same rows: three pieces at most.

    The lower end is the one that stays until the one that moves passes it, the upper end the one that moves until it meets the other.
    """
    height = one.height

    def turns(end: Ints, slope: Ints, other_end: Ints, other_slope: Ints) -> Ints:
        """The row from which on the end that moves is the larger one."""
        return np.clip((other_end - end) * (slope - other_slope), 0, height)

    lower_turns, upper_turns = turns(one.lo, one.a, other.lo, other.a), turns(one.hi, one.b, other.hi, other.b)
    cuts = [np.zeros_like(height), np.minimum(lower_turns, upper_turns), np.maximum(lower_turns, upper_turns), height]
    pieces = []
    for row, end in pairwise(cuts):
        lower_moves = np.where(one.a == other.a, one.a, row >= lower_turns)
        upper_moves = np.where(one.b == other.b, one.b, row < upper_turns)
        lo, hi = np.maximum(one.lo + one.a * row, other.lo + other.a * row), np.minimum(one.hi + one.b * row, other.hi + other.b * row)
        pieces.append((one.q0 + row, one.q0 + end, lo, lower_moves, hi, upper_moves))
    joined = bands(*pieces)
    return without_empty_rows(joined.take(joined.height > 0))


def without_empty_rows(old: Bands) -> Bands:
    """Drop rows that see no key. Widths change by at most one per row, so those are at the start or at the end of a band."""
    first, grow = old.hi - old.lo, old.b - old.a
    skip = np.where((grow > 0) & (first <= 0), np.minimum(1 - first, old.height), 0)
    keep = np.where(grow < 0, np.minimum(np.maximum(first, 0), old.height), old.height)
    keep = np.where((grow == 0) & (first <= 0), 0, keep)
    return (t := old.part(np.arange(len(skip)), old.q0 + skip, old.q0 + keep)).take(t.height > 0)


def transposed(old: Bands) -> Bands:
    """The same visible pairs seen from the keys: bands over keys whose intervals are rows."""
    height, end = old.height, old.hi_last
    lower_bends = np.where(old.b == 1, old.hi - 1, end)  # from this key on, the first row that sees it moves down
    upper_bends = np.where(old.a == 1, old.lo_last, old.lo)  # from this key on, the last row that sees it stays
    cuts = [old.lo, np.minimum(lower_bends, upper_bends), np.maximum(lower_bends, upper_bends), end]
    cuts = [np.clip(cut, old.lo, end) for cut in cuts]
    pieces = []
    for key, key_end in pairwise(cuts):
        moves_down = (old.b == 1) & (key >= lower_bends)
        still_grows = (old.a == 1) & (key < upper_bends)
        first_row = np.where(moves_down, key - old.hi + 1, 0)
        last_row = np.where(still_grows, key - old.lo + 1, height)
        pieces.append((key, key_end, old.q0 + first_row, moves_down, old.q0 + last_row, still_grows))
    joined = bands(*pieces)
    return joined.take(joined.height > 0)
