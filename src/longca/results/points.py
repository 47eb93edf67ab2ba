"""The points of charts: of the records at one place one value, the spread, and why there is no value."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from statistics import fmean
from typing import Any, NamedTuple, TypeVar

from longca.results.metrics import mean_speed, median
from longca.results.naming import Row
from longca.results.record import OK, Pass, Record
from longca.results.statuses import explaining
from longca.results.tables import TFLOPS, speed_unit

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Names = Callable[[Row], str]


class Measure(NamedTuple):
    """What a chart shows of records that are ok, and how several of them become one value: values that are speeds as all work over all
    time, others by `join`."""

    label: str
    value: Callable[[Record], float | None]
    spread: Callable[[Record], tuple[float, float]] | None = None
    join: Callable[[Sequence[float]], float] = median
    is_speed: bool = False


def _speeds(record: Record) -> tuple[float, float]:
    """The ends of the speed; the ratio comes first, so that equal times give the speed itself, to the last digit."""
    times = record.times
    return record.speed * (times.median / times.p80), record.speed * (times.median / times.p20)


def _above_zero(field: str) -> Callable[[Record], float | None]:
    read: Callable[[Record], float | None] = attrgetter(field)

    def value(record: Record) -> float | None:
        measured = read(record)
        return measured if measured and measured > 0 else None

    return value


def _range(field: str) -> Callable[[Record], tuple[float, float]]:
    return lambda record: (getattr(record, field),) * 2


SPEED = Measure("TFLOP/s", attrgetter("tflops"), _speeds, is_speed=True)
TIME = Measure("ms", attrgetter("ms.median"), lambda record: (record.times.p20, record.times.p80), join=fmean)
MEMORY = Measure("GiB", _above_zero("peak_gib"), join=max)
PLANNING = Measure("ms", _above_zero("plan_ms"), join=max)
COMPILING = Measure("ms", _above_zero("compile_ms"), join=max)
BUILDING = Measure("ms", _above_zero("build_ms"), join=max)
TYPICAL_PLANNING = PLANNING._replace(join=median)
TYPICAL_BUILDING = BUILDING._replace(join=median, spread=_range("build_ms"))


def speed_of(rows: Iterable[Row]) -> Measure:
    """The speed in the unit that fits these rows: GFLOP/s if all are below 1 TFLOP/s."""
    unit = speed_unit(row.record.speed for row in rows if row.record.ok)

    def spread(record: Record) -> tuple[float, float]:
        low, high = _speeds(record)
        return low * unit.per_tflops, high * unit.per_tflops

    return SPEED if unit is TFLOPS else Measure(unit.name, lambda record: record.speed * unit.per_tflops, spread, is_speed=True)


class Point(NamedTuple):
    """One place of one line: `value` is None where nothing counts. `row` is the nearest to the value, or tells why there is none."""

    value: float | None
    low: float | None
    high: float | None
    row: Row
    records: int  # how many are behind the value, or without one


def point(rows: Sequence[Row], measure: Measure) -> Point | None:
    """The point of rows at one place; None where none of them has the value and none failed."""
    value_of = measure.value
    values = [(value, row) for row in rows if row.record.status is OK and (value := value_of(row.record)) is not None]
    if not values:
        row = explaining(rows)
        return None if row is None else Point(None, None, None, row, sum(not row.record.ok for row in rows))
    if len(values) == 1:
        ((joined, nearest),) = values
        low, high = measure.spread(nearest.record) if measure.spread else (None, None)
    else:
        figures, times = [value for value, _ in values], [row.record.times.median for _, row in values]
        joined = mean_speed(figures, times) if measure.is_speed else measure.join(figures)
        nearest = next((row for value, row in values if value == joined), None) or min(values, key=lambda pair: abs(pair[0] - joined))[1]
        ends = [end for _, row in values for end in measure.spread(row.record)] if measure.spread else []
        low, high = (min(joined, *ends), max(joined, *ends)) if ends else (None, None)
    return Point(joined, low, high, nearest, len(values))


line_of: Names = attrgetter("line")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Rows, or whatever it is, by a key, in the order in which keys come first."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def by_pass(items: Iterable[Item], pass_of: Callable[[Item], Pass] = attrgetter("record.pass_")) -> dict[Pass, list[Item]]:
    """Rows, or whatever has a pass, by pass: forward first."""
    groups = grouped(items, pass_of)
    return {pass_: groups[pass_] for pass_ in Pass if pass_ in groups}


def timed_lines(rows: Iterable[Row], series: Names = line_of) -> list[str]:
    """Lines that have a time: a legend or a table of the others would be empty."""
    return sorted({series(row) for row in rows if row.record.ok})


def at_longest(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """Of each group the rows at its longest length."""
    longest = {name: max(row.record.seqlen for row in group) for name, group in grouped(rows, key).items()}
    return [row for row in rows if row.record.seqlen == longest[key(row)]]


def several(groups: Mapping[Any, Sequence[Row]], key: Callable[[Row], Hashable]) -> bool:
    """Whether a group has more than one value of the key."""
    return any(len({key(row) for row in group}) > 1 for group in groups.values())
