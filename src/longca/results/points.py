"""The points of charts: of the records at one place one value and the spread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from statistics import fmean, median
from typing import NamedTuple, TypeVar

from longca.results.metrics import mean_speed
from longca.results.naming import Row
from longca.results.problem import Pass
from longca.results.record import Record
from longca.results.tables import TFLOPS, speed_unit

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Names = Callable[[Row], str]


class Measure(NamedTuple):
    """What a chart shows of records that are ok, and how several of them become one value."""

    label: str
    value: Callable[[Record], float | None]
    spread: Callable[[Record], tuple[float, float]] | None = None
    join: Callable[[Sequence[float]], float] = median
    log: bool = False  # whether its axis has a logarithmic scale
    is_speed: bool = False  # several speeds become all work over all time


def _speeds(record: Record) -> tuple[float, float]:
    """The ends of the speed; the ratio comes first, so that equal times give the speed itself, to the last digit."""
    times = record.times
    return record.speed * (times.median / times.p80), record.speed * (times.median / times.p20)


SPEED = Measure("TFLOP/s", attrgetter("times.tflops"), _speeds, is_speed=True)
TIME = Measure("ms", attrgetter("times.median"), lambda record: (record.times.p20, record.times.p80), join=fmean)
MEMORY = Measure("GiB beyond the inputs", lambda record: record.peak_gib or None, join=max, log=True)  # kernels differ a hundredfold


def speed_of(rows: Iterable[Row]) -> Measure:
    """The speed in the unit that fits these rows: GFLOP/s if all are below 1 TFLOP/s."""
    unit = speed_unit(row.record.speed for row in rows if row.record.ok)

    def spread(record: Record) -> tuple[float, float]:
        low, high = _speeds(record)
        return low * unit.per_tflops, high * unit.per_tflops

    return SPEED if unit is TFLOPS else Measure(unit.name, lambda record: record.speed * unit.per_tflops, spread, is_speed=True)


class Point(NamedTuple):
    """One place of one line: the value, and the ends of its spread, which are the value itself where it has none."""

    value: float
    low: float
    high: float


def point(rows: Sequence[Row], measure: Measure) -> Point | None:
    """The point of rows at one place; None where none of them has the value."""
    found = [(value, row.record) for row in rows if row.record.ok and (value := measure.value(row.record)) is not None]
    if not found:
        return None
    values, times = [value for value, _ in found], [record.times.median for _, record in found]
    joined = mean_speed(values, times) if measure.is_speed else measure.join(values)
    ends = [end for _, record in found for end in measure.spread(record)] if measure.spread else []
    return Point(joined, min([joined, *ends]), max([joined, *ends]))


line_of: Names = attrgetter("line")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Rows, or whatever it is, by a key, in the order in which keys come first."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def by_pass(items: Iterable[Item], pass_of: Callable[[Item], Pass] = attrgetter("record.problem.pass_")) -> dict[Pass, list[Item]]:
    """Rows, or whatever has a pass, by pass: forward first."""
    groups = grouped(items, pass_of)
    return {pass_: groups[pass_] for pass_ in Pass if pass_ in groups}


def timed_lines(rows: Iterable[Row], series: Names = line_of) -> list[str]:
    """Lines that have a time: a legend or a table of the others would be empty."""
    return sorted({series(row) for row in rows if row.record.ok})


def at_longest(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """Of each group the rows at its longest length."""
    longest = {name: max(row.record.problem.seqlen for row in group) for name, group in grouped(rows, key).items()}
    return [row for row in rows if row.record.problem.seqlen == longest[key(row)]]
