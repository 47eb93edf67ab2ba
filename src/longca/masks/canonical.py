"""Putting bands into the form a Mask promises: disjoint, sorted, no two that could be one; and their fingerprint.

Two masks with the same visible pairs have the same fingerprint however they were built.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.masks.bands import Bands, Ints, in_order, split_rows

STARTS, ENDS = 4, 5  # slopes (a, b) are written as the number 2a + b; these mean: nothing comes from above, nothing goes on below


def merged(old: Bands) -> Bands:
    """Join bands that touch, side by side or one below the other; raise where two overlap."""
    current = _join_sideways(in_order(old))
    while True:
        joined = _join_downwards(current)
        if len(joined.q0) == len(current.q0):
            return joined
        current = joined


def _join_sideways(old: Bands) -> Bands:
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
    """For each band the one that continues it in the next row, and the slopes of that step as 2a + b (ENDS where none does)."""
    stride = int(sorted_bands.hi_last.max(initial=0)) + 3
    exact = object if int(sorted_bands.q1.max(initial=0)) * stride >= 1 << 62 else np.int64  # numbers of Python where 64 bits overflow
    key = sorted_bands.q0.astype(exact) * stride + sorted_bands.lo
    wanted = sorted_bands.q1.astype(exact) * stride + sorted_bands.lo_last
    found = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    move_lo, move_hi = key[found] - wanted, sorted_bands.hi[found] - sorted_bands.hi_last
    linked = (move_lo >= 0) & (move_lo <= 1) & (move_hi >= 0) & (move_hi <= 1)
    return np.where(linked, found, -1), np.where(linked, 2 * move_lo + move_hi, ENDS)


def _join_downwards(old: Bands) -> Bands:
    if len(old.q0) == 0:
        return old
    code = 2 * old.a + old.b
    single = old.height == 1
    if single.any():  # a single row has no slope of its own: it takes the one that lets it join a neighbour
        below, step = _links(old)
        upper = np.flatnonzero(below >= 0)
        lower = below[upper]
        step = step[upper]
        code[single] = 0
        pairs = single[upper] & single[lower] & (old.q0[upper] % 2 == 0)
        code[upper[pairs]] = code[lower[pairs]] = step[pairs]
        into_below = single[upper] & ~single[lower] & (code[lower] == step)
        code[upper[into_below]] = step[into_below]
        into_above = single[lower] & ~single[upper] & (code[upper] == step)
        code[lower[into_above]] = step[into_above]
    a, b = code // 2, code % 2
    lo_line, hi_line = old.lo - a * old.q0, old.hi - b * old.q0
    order = np.lexsort((old.q0, hi_line, lo_line, code))
    s = old._replace(a=a, b=b).take(order)
    code, lo_line, hi_line = code[order], lo_line[order], hi_line[order]
    same_line = (code[1:] == code[:-1]) & (lo_line[1:] == lo_line[:-1]) & (hi_line[1:] == hi_line[:-1])
    joined = same_line & (s.q1[:-1] == s.q0[1:])
    first = np.flatnonzero(np.append(True, ~joined))
    last = np.append(first[1:], len(s.q0)) - 1
    result = s.take(first)._replace(q1=s.q1[last])
    sloped = (result.height > 1).astype(np.int64)
    return in_order(result._replace(a=result.a * sloped, b=result.b * sloped))


def fingerprint(sorted_bands: Bands, seqlen_q: int, seqlen_k: int) -> str:
    """A hash of the visible pairs. It is taken over the points where the path of an interval starts, ends or bends, which do not
    depend on how the path was cut into bands."""
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
