"""How much slower: an interval for the ratio of two sets of samples, without assuming how they are distributed. Rankings, answers, the page
and `compare` tell by it whether two times differ."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

CONFIDENCE = 0.99
ENOUGH_SAMPLES = 5  # with fewer, `compare` decides nothing, and `recommend` and the page say so
REPEATS = 0.02  # of a time: 99 of 100 times are nearer to that of another run of the same cell (tests/compare/data/h200-twice)
ENOUGH_FOR_CORRELATION = 8  # fewer samples show neither how they depend on each other nor a step
MOST_CORRELATION = 0.9
REACH = 8  # samples before and after those taken, in which a drift may have gone on as fast as among them
UNSEEN = 0.5  # of the range of fewer samples: how far a drift that they cannot show may have gone on
CLEAR_STEP = 4.0  # standard errors: the means before and after a place that differ by more are a step of the clock, not noise
ROUNDING = 1e-20  # a variance of logarithms below this is no noise at all
QUANTILE = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)

Floats = NDArray[np.float64]
Samples = Sequence[float]


class Ratio(Struct, frozen=True):
    """B over A: the median of all ratios of two samples. `low` and `high` bound it. Where a side has too `few` samples, they are the least
    and the greatest ratio, which may miss what more samples would show.

    Where samples depend on each other so much that their order says nothing, the ratio is `drifting`, and the bounds are the least and the
    greatest ratio of two samples. `wander` is the logarithm by which the ratio may lie beyond the bounds without any change.
    """

    value: float
    low: float
    high: float
    wander: float = 0.0
    drifting: bool = False
    few: bool = False

    def times(self, factor: float) -> Ratio:
        return Ratio(self.value * factor, self.low * factor, self.high * factor, self.wander, self.drifting, self.few)

    def side(self, threshold: float) -> int:
        """1 where B is slower, -1 where it is faster: the whole interval lies beyond the threshold, by more than drift explains. Else 0."""
        limit, drift = 1 + threshold, math.exp(self.wander)
        return (self.low > limit * drift) - (self.high * drift < 1 / limit)


def ratio(before: Samples, after: Samples) -> Ratio:
    """The Hodges-Lehmann estimate of the shift between the logarithms, and its rank-sum interval, in which it always lies.

    On a drifting machine each sample resembles the one before. The rank sum's variance is then taken larger by what the correlation of
    neighbours says, so that a drift widens the interval. Where that leaves no rank, the bounds are those of all ratios: samples within a
    percent of each other show no change by five, and a drift by parts of a percent cannot explain a change by tens of them.

    A clock that steps once within each run, early in one and late in the other, shifts the medians by as much as the step. So the larger
    step of the two is part of `wander`.
    """
    a, b = _logs(before), _logs(after)
    shifts = _shifts(a, b)
    low, high, reaches = _bounds(a, b, shifts, max(_inflation(a), _inflation(b)))
    few = min(len(a), len(b)) < ENOUGH_SAMPLES
    drifting = reaches and not few
    if drifting:
        wander = sum((REACH / len(logs) * float(np.ptp(logs)) for logs in (a, b)), 0.0)
    else:
        wander = sum((UNSEEN * float(np.ptp(logs)) for logs in (a, b) if len(logs) < ENOUGH_FOR_CORRELATION), 0.0)
    value = math.exp((shifts[(len(shifts) - 1) // 2] + shifts[len(shifts) // 2]) / 2)
    return Ratio(value, low, high, max(wander, _step(a), _step(b)), drifting, few)


def as_fast(before: Samples, after: Samples) -> bool:
    """Whether the interval of the ratio reaches within `REPEATS` of 1. The order of samples says nothing: those of a total are sums."""
    apart = max(min(after) / max(before), min(before) / max(after))
    if apart > 1 + REPEATS:  # whatever the interval is
        return False
    a, b = _logs(before), _logs(after)
    low, high, _ = _bounds(a, b, _shifts(a, b))
    return low <= 1 + REPEATS and high >= 1 / (1 + REPEATS)


def _logs(samples: Samples) -> Floats:
    return np.log(np.array(samples, dtype=np.float64))


def _shifts(a: Floats, b: Floats) -> Floats:
    """The logarithms of all ratios of two samples, sorted."""
    return np.sort((b[:, None] - a).ravel())


def _bounds(a: Floats, b: Floats, shifts: Floats, inflation: float = 1.0) -> tuple[float, float, bool]:
    """The rank-sum interval of the ratio, and whether it would reach beyond all of them."""
    n, m = len(a), len(b)
    rank = math.floor(n * m / 2 - QUANTILE * math.sqrt(n * m * (n + m + 1) / 12 * inflation))
    least = max(rank, 0)
    return math.exp(shifts[least]), math.exp(shifts[n * m - 1 - least]), rank < 0


def _inflation(logs: Floats) -> float:
    """How many dependent samples are worth one independent sample, from the correlation of each with the next."""
    centred = logs - logs.mean()
    power = float(centred @ centred)
    if len(logs) < ENOUGH_FOR_CORRELATION or power < ROUNDING:
        return 1.0
    correlation = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), MOST_CORRELATION)
    return (1 + correlation) / (1 - correlation)


def _step(logs: Floats) -> float:
    """The largest clear step: the difference of the means before and after one place. 0 where none is beyond the noise."""
    n = len(logs)
    if n < ENOUGH_FOR_CORRELATION:
        return 0.0
    centred = logs - np.median(logs)
    before, after = np.arange(1, n), np.arange(n - 1, 0, -1)
    sums, squares = centred.cumsum(), np.square(centred).cumsum()
    means, rest = sums[:-1] / before, (sums[-1] - sums[:-1]) / after
    within = np.maximum(squares[-1] - before * means**2 - after * rest**2, ROUNDING) / (n - 2)
    steps = np.abs(means - rest)
    clear = steps > CLEAR_STEP * np.sqrt(within * (1 / before + 1 / after))
    return float(np.where(clear, steps, 0.0).max())
