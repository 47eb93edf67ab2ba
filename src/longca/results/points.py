"""The points of charts: of the records at one place one value and the spread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec.structs import replace

from longca.results.grouping import grouped, line_of
from longca.results.naming import Row
from longca.results.ranking import Figure, figure, mean
from longca.results.tables import TFLOPS, speed_unit


class Measure(NamedTuple):
    """What a chart shows of records that are ok; of several it is that of their mean time, all their work over all time, and the most
    memory."""

    label: str
    value: Callable[[Figure], float | None]
    spreads: bool = True  # as times do
    log: bool = False  # whether its axis has a logarithmic scale


SPEED, TIME = Measure("TFLOP/s", attrgetter("tflops")), Measure("ms", attrgetter("ms"))
MEMORY = Measure("GiB beyond the inputs", lambda own: own.peak_gib or None, spreads=False, log=True)  # kernels differ a hundredfold


def speed_of(rows: Iterable[Row]) -> Measure:
    """The speed in the unit that fits these rows: GFLOP/s if all are below 1 TFLOP/s."""
    unit = speed_unit(row.record.speed for row in rows if row.record.ok)
    return SPEED if unit is TFLOPS else Measure(unit.name, lambda own: own.tflops * unit.per_tflops)


class Point(NamedTuple):
    """One place of one line: the value, and the ends of its spread, which are the value itself where it has none."""

    value: float
    low: float
    high: float


def point(rows: Sequence[Row], measure: Measure) -> Point | None:
    """The point of rows at one place, of those of several grids that of the fastest; None where none of them has the value."""
    lines = grouped([row for row in rows if row.record.ok], line_of).values()
    known = [[own for row in line if measure.value(own := figure([row.record])) is not None] for line in lines]
    figures = max(known, key=lambda own: mean(own).tflops if own else 0.0, default=[])
    value = measure.value(mean(figures)) if figures else None
    if value is None:
        return None
    ends = [measure.value(end) for own in figures for end in _ends(own)] if measure.spreads else []
    values = [value, *(end for end in ends if end is not None)]
    return Point(value, min(values), max(values))


def _ends(own: Figure) -> list[Figure]:
    """The same work in the 20th and the 80th percentile of the time; the ratio comes first, so that equal times give equal speeds."""
    times = own.records[0].times
    return [replace(own, ms=ms, tflops=own.tflops * (times.median / ms)) for ms in (times.p20, times.p80)]
