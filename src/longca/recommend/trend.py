"""Rates of kernels at a length: from records around it, or beyond the measured lengths of a shape as another shape's rates go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from longca.recommend.geometry import Geometry
from longca.results.record import Record
from longca.results.tile_work import TileWork


@dataclass(frozen=True)
class Trend:
    """Records of another shape, around the length that is asked for and at the last length of the shape that is asked for."""

    geometry: Geometry  # of the other shape
    last: int
    records: Sequence[Record]
    work: TileWork

    def of(self, record: Record) -> float | None:
        """The rate at the length that is asked for over that at the last length; None where the kernel has no records there."""
        rates = {other.problem.seqlen: self.work.of_record(other) / other.times.median for other in self.alike(record)}
        return self.geometry.interpolate(rates) / rates[self.last] if rates else None

    def alike(self, record: Record) -> list[Record]:
        """The other shape's records of this kernel, pass and, if there are any, seed; none where they do not tell a change."""
        alike = [other for other in self.records if _kind(other) == _kind(record) and other.ok]
        same = [other for other in alike if other.problem.seed == record.problem.seed] or alike
        lengths = {other.problem.seqlen for other in same}
        return same if self.last in lengths and lengths & set(self.geometry.lengths) - {self.last} else []


@dataclass(frozen=True)
class Rates:
    """Rates on one mask in one shape at the length of the geometry."""

    geometry: Geometry
    work: TileWork
    trend: Trend | None = None

    def of(self, records: Mapping[int, Record]) -> float:
        """The rate of one kernel in one pass, from its records by length, that of the nearest length among them."""
        rates = {n: self.work.of_record(record) / record.times.median for n, record in records.items()}
        nearest = self.geometry.nearest
        change = self.trend.of(records[nearest]) if self.trend else None
        return self.geometry.interpolate(rates) if change is None else rates[nearest] * change


def _kind(record: Record) -> tuple[object, ...]:
    return record.label, record.problem.pass_, record.grad
