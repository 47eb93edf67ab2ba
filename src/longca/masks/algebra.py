"""Intersection, complement, difference and union of bands: exact, and again bands.

Two sets of bands are cut at each other's rows, so that in each slab of rows the bands of a set stand side by side. A band and a band of
the other set overlap in one run of rows. There the larger of two lower ends is the end that stays, until the one that moves passes it;
the smaller of two upper ends is the one that moves, until it meets the one that stays: three pieces at most. Nothing loops over tokens or
bands. Sets are given and returned in canonical form, so that equal masks are equal however they were made.
"""

from __future__ import annotations

import numpy as np

from longca.masks.bands import Bands, Ints, bands, in_order, overlap, split_rows, spread, without_empty_rows
from longca.masks.canonical import merged, merged_apart


def intersection(one: Bands, other: Bands) -> Bands:
    """Returns the pairs of both."""
    rows = np.unique(np.concatenate([one.q0, one.q1, other.q0, other.q1]))
    one, other = split_rows(one, rows), split_rows(other, rows)
    first, last = _neighbours(one, other, rows)
    which, partner = spread(first, last)
    return merged_apart(overlap(one.take(which), other.take(partner)))  # a gap of either set lies between any two results


def complement(old: Bands, seqlen_q: int, seqlen_k: int) -> Bands:
    """Returns the pairs that the bands do not show."""
    rows = np.unique(np.concatenate([[0, seqlen_q], old.q0, old.q1]))
    cut = split_rows(old, rows)
    is_first = np.append(True, cut.q0[1:] != cut.q0[:-1])[: len(cut.q0)]
    is_last = np.append(is_first[1:], True)[: len(cut.q0)]
    left = cut.take(is_first)
    next_lo, next_a = (np.where(is_last, end, np.append(field[1:], 0)[: len(field)]) for field, end in ((cut.lo, seqlen_k), (cut.a, 0)))
    empty = np.flatnonzero(~np.isin(rows[:-1], cut.q0))
    gaps = bands(
        (left.q0, left.q1, 0, 0, left.lo, left.a),
        (cut.q0, cut.q1, cut.hi, cut.b, next_lo, next_a),
        (rows[empty], rows[empty + 1], 0, 0, seqlen_k, 0),
    )
    return merged_apart(without_empty_rows(gaps))  # a band lies between any two gaps


def difference(one: Bands, other: Bands, seqlen_q: int, seqlen_k: int) -> Bands:
    """Returns the pairs of the first set that the second one does not show."""
    return intersection(one, complement(other, seqlen_q, seqlen_k))


def union(one: Bands, other: Bands, seqlen_q: int, seqlen_k: int) -> Bands:
    """Returns the pairs of either."""
    return merged(bands(one, difference(other, one, seqlen_q, seqlen_k)))


def united(old: Bands, seqlen_q: int, seqlen_k: int) -> Bands:
    """Returns the pairs that any of some bands shows; these may come in any order and overlap.

    Neighbours are united two by two until one set is left. All unions of a round are computed at once: each pair of sets has rows of its
    own, with an empty row between pairs.
    """
    stride = seqlen_q + 1
    rest = in_order(old)
    group = np.arange(len(rest.q0))
    while group.max(initial=0) > 0:
        below = group // 2 * stride
        shifted = rest._replace(q0=rest.q0 + below, q1=rest.q1 + below)
        joined = union(shifted.take(group % 2 == 0), shifted.take(group % 2 == 1), (int(group.max()) // 2 + 1) * stride, seqlen_k)
        group = joined.q0 // stride
        rest = joined._replace(q0=joined.q0 - group * stride, q1=joined.q1 - group * stride)
    return merged(rest)


def _neighbours(one: Bands, other: Bands, rows: Ints) -> tuple[Ints, Ints]:
    """For each band the range [first, last) of bands of the other set that it may overlap: all that lie in its slab of rows, and neither
    wholly before it nor wholly behind it. Both sets are sorted and cut into slabs at `rows`."""
    stride = int(max(one.hi_last.max(initial=0), other.hi_last.max(initial=0))) + 1
    exact = object if len(rows) * stride >= 1 << 62 else np.int64  # Python integers where 64 bits overflow
    slab, other_slab = ((np.searchsorted(rows, cut.q0).astype(exact) * stride) for cut in (one, other))

    def count(ends: Ints, points: Ints, side: str) -> Ints:
        return np.asarray(np.searchsorted(other_slab + ends, slab + points, side=side), np.int64)  # type: ignore[call-overload]

    first = np.minimum(count(other.hi, one.lo, "right"), count(other.hi_last, one.lo_last, "right"))
    last = np.maximum(count(other.lo, one.hi, "left"), count(other.lo_last, one.hi_last, "left"))
    return first, last
