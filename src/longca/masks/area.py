"""Exact counts of visible pairs, as closed forms of the bands."""

from __future__ import annotations

import numpy as np

from longca.masks.bands import Bands, Ints


def total(b: Bands) -> int:
    """How many (row, key) pairs are visible. Python integers: exact at any length."""
    height, width, grow = (field.astype(object) for field in (b.height, b.hi - b.lo, b.b - b.a))
    return int((height * width + grow * (height * (height - 1) // 2)).sum()) if len(b.q0) else 0


def staircase(distance: Ints, steps: Ints, slope: Ints) -> Ints:
    """The sum over i < steps of max(0, distance - slope*i)."""
    positive = np.maximum(distance, 0)
    climbing = np.minimum(steps, positive)
    return np.where(slope == 1, climbing * positive - climbing * (climbing - 1) // 2, steps * positive)


def before(b: Bands, key: Ints) -> Ints:
    """Per band, the visible pairs with a key smaller than `key` (one number per band)."""
    height = b.height
    return staircase(key - b.lo, height, b.a) - staircase(key - b.hi, height, b.b)


def cumulative(b: Bands, keys: Ints) -> Ints:
    """All visible pairs with a key smaller than each of the sorted `keys`, in one sorted sweep over bands and keys.

    Each end of a band adds hinges: n*max(0, x-p) where it stays, T(x-p) - T(x-p-n) with T(y) = y(y+1)/2 where it moves.
    Between hinges the sum is a quadratic in x, whose doubled coefficients are running sums. They may wrap around in 64 bits; the
    result, which fits, comes out right all the same.
    """
    ends = [(b.lo, b.a, 1), (b.hi, b.b, -1)]
    points, linear, square = [], [], []
    for point, slope, sign in ends:
        points += [point, point + b.height]
        linear += [2 * sign * b.height * (1 - slope), np.zeros_like(point)]
        square += [sign * slope, -sign * slope]
    point, weight, quad = (np.concatenate(x) for x in (points, linear, square))
    order = np.argsort(point, kind="stable")
    point, weight, quad = point[order], weight[order], quad[order]
    sums = np.stack([quad, weight + quad * (1 - 2 * point), quad * point * (point - 1) - weight * point])
    running = np.concatenate([np.zeros((3, 1), np.int64), np.cumsum(sums, axis=1)], axis=1)
    x2, x1, x0 = running[:, np.searchsorted(point, keys, side="right")]
    return np.asarray((x2 * keys * keys + x1 * keys + x0) // 2, np.int64)
