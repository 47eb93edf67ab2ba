"""How much slower, from times taken in turns: an interval for the ratio, in which a drift of the machine cancels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from longca.results.ratio import CONFIDENCE, Ratio

LOOKS = (4, 8, 16)  # rounds after which the interval is looked at
EACH = 1 - (1 - CONFIDENCE) / len(LOOKS)  # the confidence of one look, so that all together have CONFIDENCE
ANGLES = np.linspace(0, math.pi / 2, 100_001)

Round = Sequence[tuple[float, float]]  # the milliseconds of A and B in each turn, with the same two processes


def ratio_of_rounds(rounds: Sequence[Round]) -> Ratio:
    """B over A: the mean over rounds of the logarithm that is the median of a round, and Student's interval. Rounds are the observations:
    turns of the same two processes share what tells these apart."""
    logs = np.array([np.median([math.log(b / a) for a, b in turns]) for turns in rounds])
    value, n = math.exp(logs.mean()), len(logs)
    if n < LOOKS[0]:
        return Ratio(value, value, value, few=True)
    reach = math.exp(student(n - 1, EACH) * float(logs.std(ddof=1)) / math.sqrt(n))
    return Ratio(value, value / reach, value * reach)


@cache
def student(freedom: int, confidence: float) -> float:
    """The number that the absolute value of Student's t stays below with this confidence: t is sqrt(freedom) times the tangent of an angle
    whose density is a power of its cosine."""
    chances = np.cumsum(np.cos(ANGLES) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(ANGLES[np.searchsorted(chances, confidence * chances[-1])])
