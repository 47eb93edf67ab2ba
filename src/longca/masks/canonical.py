"""The canonical form of bands: disjoint, sorted, as few as possible, unique; and the digest of the visible pairs.

Follow an interval of visible keys from row to row as long as each end stays or moves by one key: that is its path. A band is a
stretch of a path whose steps are all equal. Where the step changes, the row of the bend could belong to either band: it belongs to
the lower one. So the bands of a mask depend on its visible pairs alone, and so does the digest.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.masks.bands import Bands, Ints, in_order, split_rows

STARTS, ENDS = 4, 5  # a step (a, b) is written as 2a + b; these two mean: nothing comes from above, nothing goes on below


def merged(old: Bands) -> Bands:
    """The same pairs in canonical form; raises where two bands overlap."""
    return _join_downwards(_join_sideways(in_order(old)))


def merged_apart(old: Bands) -> Bands:
    """The same for bands of which no two overlap or touch in a row: nothing is to be joined sideways."""
    return _join_downwards(in_order(old))


def _join_sideways(old: Bands) -> Bands:
    """Bands of which no two touch in a row."""
    if len(old.q0) < 2 or (np.maximum.accumulate(old.q1)[:-1] <= old.q0[1:]).all():
        return old  # no two bands share a row
    rows = np.unique(np.concatenate([old.q0, old.q1]))
    cut = split_rows(old, rows)
    same, gap, gap_last, slope = _gaps(cut)
    if (same & (np.minimum(gap, gap_last) < 0)).any():
        raise BadInput("bands overlap: every visible pair must lie in exactly one band.")
    bends = same & (slope != 0)
    begin, end = bends & (gap == 0), bends & (gap_last == 0)
    if not (same & ((gap == 0) | (gap_last == 0))).any():
        return old
    rows = np.unique(np.concatenate([rows, cut.q0[1:][begin] + 1, cut.q1[1:][end] - 1]))
    cut = split_rows(old, rows)
    same, gap, gap_last, _ = _gaps(cut)
    joined = same & (gap == 0) & (gap_last == 0)
    first = np.flatnonzero(np.append(True, ~joined))
    last = np.append(first[1:], len(cut.q0)) - 1
    left = cut.take(first)
    return left._replace(hi=cut.hi[last], b=cut.b[last])


def _gaps(cut: Bands) -> tuple[NDArray[np.bool_], Ints, Ints, Ints]:
    """Between each band and the next one in the same rows: keys between them in the first and in the last row."""
    same = cut.q0[1:] == cut.q0[:-1]
    gap = cut.lo[1:] - cut.hi[:-1]
    slope = cut.a[1:] - cut.b[:-1]
    return same, gap, gap + slope * (cut.height[1:] - 1), slope


def _links(sorted_bands: Bands) -> tuple[Ints, Ints]:
    """For each band the one that continues its path in the next row (-1: none), and that step as 2a + b (ENDS where none does)."""
    stride = int(sorted_bands.hi_last.max(initial=0)) + 3
    exact = object if int(sorted_bands.q1.max(initial=0)) * stride >= 1 << 62 else np.int64  # Python integers where 64 bits overflow
    key = sorted_bands.q0.astype(exact) * stride + sorted_bands.lo
    wanted = sorted_bands.q1.astype(exact) * stride + sorted_bands.lo_last
    below = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    move_lo, move_hi = key[below] - wanted, sorted_bands.hi[below] - sorted_bands.hi_last
    linked = (move_lo >= 0) & (move_lo <= 1) & (move_hi >= 0) & (move_hi <= 1)
    return np.where(linked, below, -1), np.where(linked, 2 * move_lo + move_hi, ENDS).astype(np.int64)


def _join_downwards(old: Bands) -> Bands:
    """The fewest bands along each path, taken from its last row upwards."""
    if len(old.q0) == 0:
        return old
    below, step = _links(old)
    if (below < 0).all():  # every band is a path of its own
        return _with_flat_rows(old)
    path, order = _paths(below)
    alone = old.take((old.height == 1) & (below < 0) & (path == np.arange(len(path))))
    s, path, step = old.take(order), path[order], step[order]
    # stretches of equal steps: those within a band, then the one from its last row to the next band of its path
    steps = _interleaved(s.height - 1, step != ENDS)
    tops = Bands(*map(_interleaved, s, (s.q1 - 1, s.q1, s.lo_last, step // 2, s.hi_last, step % 2))).take(steps > 0)
    owner, steps = np.repeat(path, 2)[steps > 0], steps[steps > 0]
    is_first = np.append(True, owner[1:] != owner[:-1])
    code = 2 * tops.a + tops.b
    starts = np.flatnonzero(is_first | np.append(True, code[1:] != code[:-1]))
    steps, is_first, tops = np.add.reduceat(steps, starts), is_first[starts], tops.take(starts)
    left = steps - _cut_by_next(steps, np.append(is_first[1:], True))
    joined = tops._replace(q1=tops.q0 + left + 1).take((left > 0) | is_first)  # a first row that no band takes is a band of its own
    return in_order(_with_flat_rows(Bands(*map(np.concatenate, zip(joined, alone, strict=True)))))


def _with_flat_rows(old: Bands) -> Bands:
    """A single row has no slope of its own: it is written with slopes of 0."""
    sloped = (old.height > 1).astype(np.int64)
    return old._replace(a=old.a * sloped, b=old.b * sloped)


def _interleaved(even: NDArray[Any], odd: NDArray[Any]) -> Ints:
    return np.stack([even, odd], 1).ravel().astype(np.int64)


def _paths(below: Ints) -> tuple[Ints, Ints]:
    """For each band the first band of its path, and an order in which paths follow one another, each from top to bottom."""
    own = np.arange(len(below))
    first = own.copy()
    first[below[below >= 0]] = own[below >= 0]
    place = (first != own).astype(np.int64)
    while not np.array_equal(jump := first[first], first):  # twice as far in each round
        place += place[first]
        first = jump
    return first, np.lexsort((place, first))


def _cut_by_next(steps: Ints, is_last: NDArray[np.bool_]) -> Ints:
    """1 where the last step of a stretch leads into the band of the next stretch, 0 where the stretch keeps all its steps.

    The last stretch of a path keeps all. A stretch of one step that is cut has nothing left, and then the stretch above it keeps all:
    along neighbours of one step the answer alternates, counted from the next stretch that is longer or the last.
    """
    place = np.arange(len(steps))
    fixed = np.where((steps != 1) | is_last, place, len(place))
    anchor = np.minimum.accumulate(fixed[::-1])[::-1]
    distance = np.append(anchor[1:], 0) - place
    return np.where(is_last, 0, distance % 2)


def fingerprint(sorted_bands: Bands, seqlen_q: int, seqlen_k: int) -> str:
    """A hash of the visible pairs. It is taken over the points where a path starts, ends or bends."""
    digest = hashlib.blake2b(np.array([seqlen_q, seqlen_k], "<i8").tobytes(), digest_size=16)
    if len(sorted_bands.q0):
        digest.update(np.ascontiguousarray(_bends(sorted_bands), "<i8").tobytes())
    return digest.hexdigest()


def _bends(s: Bands) -> Ints:
    own = 2 * s.a + s.b
    below, leaving = _links(s)
    arriving = np.full(len(own), STARTS)
    arriving[below[below >= 0]] = leaving[below >= 0]
    tall = s.height > 1
    starts = np.stack([s.q0, s.lo, s.hi, arriving, np.where(tall, own, leaving)], 1)
    ends = np.stack([s.q1 - 1, s.lo_last, s.hi_last, own, leaving], 1)[tall]
    points = np.concatenate([starts, ends])
    points = points[points[:, 3] != points[:, 4]]
    return np.asarray(points[np.lexsort((points[:, 1], points[:, 0]))], np.int64)
