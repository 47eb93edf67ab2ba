"""How much slower: an interval for the ratio of two sets of samples, without assuming how they are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from longca.results.ranking import ENOUGH_SAMPLES

CONFIDENCE = 0.99
ENOUGH_FOR_CORRELATION = 8  # fewer samples show neither how they depend on each other nor a step
MOST_CORRELATION = 0.9
REACH = 8  # samples before and after those taken, in which a drift may have gone on as fast as among them
UNSEEN = 0.5  # of the range of fewer samples: how far a drift that they cannot show may have gone on
CLEAR_STEP = 4.0  # standard errors: the means before and after a place that differ by more are a step of the clock, not noise
ROUNDING = 1e-20  # a variance of logarithms below this is no noise at all
BATCH = 1 << 21  # shifts that are sorted at a time

Floats = NDArray[np.float64]
Samples = Sequence[float]


class Ratio(Struct, frozen=True, gc=False):
    """B over A: the median of all ratios of two samples. `low` and `high` bound it; they are 0 and inf where a side has too few samples.

    Where samples depend on each other so much that their order says nothing, the ratio is `drifting`, and the bounds are the least and the
    greatest ratio of two samples. `wander` is the logarithm by which the ratio may lie beyond the bounds without any change.
    """

    value: float
    low: float
    high: float
    wander: float = 0.0
    drifting: bool = False

    @property
    def known(self) -> bool:
        return self.high < math.inf

    def times(self, factor: float) -> Ratio:
        return Ratio(self.value * factor, self.low * factor, self.high * factor, self.wander, self.drifting)


def ratio(before: Samples, after: Samples) -> Ratio:
    """The Hodges-Lehmann estimate of the shift between the logarithms, and its rank-sum interval, in which it always lies.

    On a drifting machine each sample resembles the one before. The rank sum's variance is then taken larger by what the correlation of
    neighbours says, so that a drift widens the interval. Where that leaves no rank, the bounds are those of all ratios: samples within a
    percent of each other show no change by five, and a drift by parts of a percent cannot explain a change by tens of them.

    A clock that steps once within each run, early in one and late in the other, shifts the medians by as much as the step. So the larger
    step of the two is part of `wander`.
    """
    return ratios([(before, after)])[0]


def ratios(pairs: Sequence[tuple[Samples, Samples]]) -> list[Ratio]:
    """The ratio of each pair; pairs with the same numbers of samples are computed together."""
    results: list[Ratio] = [Ratio(1.0, 0.0, math.inf)] * len(pairs)

    def sizes(index: int) -> tuple[int, int]:
        return len(pairs[index][0]), len(pairs[index][1])

    for (n, m), group in groupby(sorted(range(len(pairs)), key=sizes), key=sizes):
        indices, step = list(group), max(1, BATCH // (n * m))
        for start in range(0, len(indices), step):
            chosen = indices[start : start + step]
            a, b = (np.log(np.array([pairs[index][side] for index in chosen], dtype=np.float64)) for side in (0, 1))
            for index, result in zip(chosen, _ratios(a, b), strict=True):
                results[index] = result
    return results


def _ratios(a: Floats, b: Floats) -> list[Ratio]:
    """The ratios of pairs, from the logarithms of their samples `[pairs, samples]`."""
    (count, n), m = a.shape, b.shape[1]
    shifts = np.sort((b[:, :, None] - a[:, None, :]).reshape(count, n * m), axis=1)
    values = np.exp((shifts[:, (n * m - 1) // 2] + shifts[:, n * m // 2]) / 2).tolist()
    if min(n, m) < ENOUGH_SAMPLES:
        return [Ratio(value, 0.0, math.inf) for value in values]
    width = _quantile((1 + CONFIDENCE) / 2) * math.sqrt(n * m * (n + m + 1) / 12)
    cuts = np.floor(n * m / 2 - width * np.sqrt(np.maximum(_inflation(a), _inflation(b)))).astype(np.int64)
    drifting, rows, ranks = cuts < 0, np.arange(count), np.maximum(cuts, 0)
    low, high = np.exp(shifts[rows, ranks]), np.exp(shifts[rows, n * m - 1 - ranks])
    wander = np.where(drifting, sum(REACH / logs.shape[1] * np.ptp(logs, axis=1) for logs in (a, b)), 0.0)
    unseen = sum((UNSEEN * np.ptp(logs, axis=1) for logs in (a, b) if logs.shape[1] < ENOUGH_FOR_CORRELATION), np.zeros(count))
    wander = np.maximum(np.maximum(wander, np.where(drifting, 0.0, unseen)), np.maximum(_step(a), _step(b)))
    return [Ratio(*row) for row in zip(values, low.tolist(), high.tolist(), wander.tolist(), drifting.tolist(), strict=True)]


@cache
def _quantile(share: float) -> float:
    return NormalDist().inv_cdf(share)


def _inflation(logs: Floats) -> Floats:
    """How many dependent samples are worth one independent sample, from the correlation of each with the next."""
    count, n = logs.shape
    if n < ENOUGH_FOR_CORRELATION:
        return np.ones(count)
    centred = logs - logs.mean(axis=1, keepdims=True)
    power = np.square(centred).sum(axis=1)
    products = (centred[:, 1:] * centred[:, :-1]).sum(axis=1)
    correlation = np.clip(products / np.maximum(power, ROUNDING), 0.0, MOST_CORRELATION)
    return np.where(power < ROUNDING, 1.0, (1 + correlation) / (1 - correlation))


def _step(logs: Floats) -> Floats:
    """The largest clear step in each row: the difference of the means before and after one place. 0 where none is beyond the noise."""
    count, n = logs.shape
    if n < ENOUGH_FOR_CORRELATION:
        return np.zeros(count)
    centred = logs - np.median(logs, axis=1, keepdims=True)
    before, after = np.arange(1, n), np.arange(n - 1, 0, -1)
    sums, squares = centred.cumsum(axis=1), np.square(centred).cumsum(axis=1)
    means, rest = sums[:, :-1] / before, (sums[:, -1:] - sums[:, :-1]) / after
    within = np.maximum(squares[:, -1:] - before * means**2 - after * rest**2, ROUNDING) / (n - 2)
    steps = np.abs(means - rest)
    clear = steps > CLEAR_STEP * np.sqrt(within * (1 / before + 1 / after))
    return np.asarray(np.where(clear, steps, 0.0).max(axis=1))
