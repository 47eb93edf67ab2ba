"""How much slower: an interval for the ratio of two sets of samples, without assuming how they are distributed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.99
ENOUGH_FOR_CORRELATION = 8  # of fewer samples nothing can be said about how they hang together
MOST_CORRELATION = 0.9
REACH = 8  # samples before and behind those taken, in which a drift may have gone on as fast as it went among them
UNSEEN = 0.5  # of the range of fewer samples: how far a drift that they cannot show may have gone on
ROUNDING = 1e-20  # of logarithms: less than this is no noise at all


@dataclass(frozen=True)
class Ratio:
    """B over A. `low` and `high` are 0 and inf where there are too few samples to say anything. Where samples hang together so much that
    their order says nothing, it is `drifting`, and they are the least and the greatest ratio of two samples. `wander` is by what logarithm
    the ratio may lie beyond them without any change."""

    value: float
    low: float
    high: float
    wander: float = 0.0
    drifting: bool = False

    @property
    def known(self) -> bool:
        return self.high < math.inf

    def times(self, factor: float) -> Ratio:
        return replace(self, value=self.value * factor, low=self.low * factor, high=self.high * factor)


def ratio(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> Ratio:
    """The ratio of the medians, and the rank-sum (Hodges-Lehmann) interval of the shift between the logarithms.

    Samples that follow each other are alike when the machine drifts, and then say less than their number: the rank sum's variance is
    taken larger by what the correlation of neighbours says, so that a drift makes the interval wider instead of making an alarm. Where
    that leaves no rank, the ranges are left: samples that all lie within a percent of each other show no change by five, and a drift by
    parts of a percent cannot explain one by tens of them.
    """
    a, b = np.log(np.asarray(before, dtype=np.float64)), np.log(np.asarray(after, dtype=np.float64))
    value = math.exp(float(np.median(b) - np.median(a)))
    pairs = len(a) * len(b)
    width = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(pairs * (len(a) + len(b) + 1) / 12)
    cut = math.floor(pairs / 2 - width * math.sqrt(max(_inflation(a), _inflation(b))))
    if pairs / 2 < width:
        return Ratio(value, 0.0, math.inf)
    shifts = np.sort((b[:, None] - a[None, :]).ravel())
    if cut < 0:
        wander = sum(REACH / len(logs) * float(np.ptp(logs)) for logs in (a, b))
        return Ratio(value, math.exp(shifts[0]), math.exp(shifts[-1]), wander, drifting=True)
    unseen = sum(UNSEEN * float(np.ptp(logs)) for logs in (a, b) if len(logs) < ENOUGH_FOR_CORRELATION)
    return Ratio(value, math.exp(shifts[cut]), math.exp(shifts[pairs - 1 - cut]), unseen)


def _inflation(logs: NDArray[np.float64]) -> float:
    """How many dependent samples are worth one independent one, from the correlation of each with the next."""
    centred = logs - logs.mean()
    power = float(centred @ centred)
    if len(logs) < ENOUGH_FOR_CORRELATION or power < ROUNDING:
        return 1.0
    correlation = min(max(float(centred[1:] @ centred[:-1]) / power, 0.0), MOST_CORRELATION)
    return (1 + correlation) / (1 - correlation)
