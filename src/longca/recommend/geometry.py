"""Where a length lies among measured ones, and what a value is there."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

TOLERANCE = 1.001  # of ratios of lengths
FARTHEST = 4.0  # times the longest measured length, or the shortest over it: beyond, another shape must tell how rates go on
FALLING = -0.3  # as a power of the length: a rate that falls faster goes on falling (kernels that compute hidden tiles, too)


class Geometry(NamedTuple):
    """A length, the nearest measured ones below and above it, and beyond a single one a farther one that tells its trend; 0: none."""

    seqlen: int
    below: int
    above: int
    far: int = 0

    @classmethod
    def of(cls, seqlen: int, measured: Collection[int]) -> Geometry:
        if seqlen in measured:
            return cls(seqlen, seqlen, seqlen)
        below, above = max((n for n in measured if n < seqlen), default=0), min((n for n in measured if n > seqlen), default=0)
        return cls(seqlen, below, above, _far(below, above, measured))

    @property
    def is_measured(self) -> bool:
        return self.below == self.seqlen

    @property
    def is_between(self) -> bool:
        return bool(self.below and self.above)

    @property
    def lengths(self) -> tuple[int, ...]:
        """The nearest measured lengths."""
        return tuple(sorted({n for n in (self.below, self.above) if n}))

    @property
    def read(self) -> tuple[int, ...]:
        """All lengths whose values are used."""
        return tuple(sorted({n for n in (self.below, self.above, self.far) if n}))

    @property
    def nearest(self) -> int:
        """The nearest measured length."""
        return min(self.lengths, key=self.distance)

    @property
    def nearest_ratio(self) -> float:
        """The length over the nearest measured one, or the other way round: at least 1."""
        return math.exp(self.distance(self.nearest))

    def distance(self, length: int) -> float:
        return abs(math.log(length / self.seqlen))

    def interpolate(self, values: Mapping[int, float]) -> float:
        """The value at this length: on a straight line over logarithms between two lengths; beyond the last length its value, or the trend
        of values that fall fast."""
        nearest = [n for n in self.lengths if n in values]
        if len(nearest) == 2:
            low, high = values[self.below], values[self.above]
            part = math.log(self.seqlen / self.below) / math.log(self.above / self.below)
            return math.exp((1 - part) * math.log(low) + part * math.log(high))
        value, slope = values[nearest[0]], 0.0
        if self.far in values and self.far not in nearest:
            slope = math.log(value / values[self.far]) / math.log(nearest[0] / self.far)
        return value * math.pow(self.seqlen / nearest[0], slope if slope < FALLING else 0.0)

    def at(self, seqlen: int, measured: Collection[int]) -> Geometry | None:
        """The same around another length: neighbours on the same sides, each as far away or farther; None where there are none."""
        below = above = 0
        if self.below:
            below = max((n for n in measured if n < seqlen and n * self.seqlen <= seqlen * self.below * TOLERANCE), default=0)
        if self.above:
            above = min((n for n in measured if n > seqlen and n * self.seqlen * TOLERANCE >= seqlen * self.above), default=0)
        same = bool(below) == bool(self.below) and bool(above) == bool(self.above)
        return Geometry(seqlen, below, above, _far(below, above, measured)) if same else None


def _far(below: int, above: int, measured: Collection[int]) -> int:
    """Beyond the last length on one side: the nearest one that is half of it, or twice as long."""
    if below and not above:
        return max((n for n in measured if 2 * n <= below), default=0)
    return min((n for n in measured if n >= 2 * above), default=0) if above and not below else 0
