"""The cells of the page: one per kernel, mask, pass and place on the axis, as columns, with records known by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from longca.report.encoding import column, packed_numbers
from longca.report.frames import Frame
from longca.results.answers import Answer, shares_of_best
from longca.results.limits import Limits
from longca.results.naming import Row
from longca.results.ranking import Entry, Figure, Ranking
from longca.results.record import Record
from longca.results.shares import worst_error

NONE = -1  # where a cell has no such record
Numbers = Mapping[int, int]  # of records, by their identity


class PageCell(NamedTuple):
    """One kernel at one place. Several masks (seeds) make one cell: the mean time over those on which kernels are compared, all work
    over all time, and the records of the mask whose speed is nearest to that."""

    setting: int
    panel: str
    line: str
    pass_: str
    x: float
    record: int  # of the time; of a forward and a backward together that of the backward
    second: int  # the forward of such a pair
    failed: int  # the record that says why a mask has no time
    masks: int  # that its time is of
    compared: int  # masks on which kernels are compared; 0 where this kernel has none of them
    tflops: float | None
    ms: float | None
    low_tflops: float | None  # the ends over several masks
    high_tflops: float | None
    low_ms: float | None
    high_ms: float | None
    limit: float | None  # share of the speed that tiles allow
    close: float | None  # share of the fastest speed at this place
    error: float | None  # the worst, as a share of the tolerance
    tensor: str | None
    worst: int  # the record of that error


def cells_of(setting: int, frame: Frame, found: Iterable[Answer], limits: Limits, records: Numbers) -> list[PageCell]:
    """All cells of one setting. Where a line stands for several grids, the fastest of them."""
    cells: dict[tuple[object, ...], PageCell] = {}
    for answer in found:
        shares, (panel, x) = shares_of_best(answer.ranking), frame.place(answer.first)
        known, measured = _Limits(limits), answer.measured
        for entry in answer.entries:
            place = setting, panel, frame.line(answer.rows[entry.line][0]), answer.contest.pass_.value, x
            figures, error = _figures(entry, answer.ranking, known, records), _error(measured.get(entry.line, ()), records)
            cell = PageCell._make((*place, *figures, shares.get(entry.line), *error))
            if place not in cells or (cell.tflops or 0.0) > (cells[place].tflops or 0.0):
                cells[place] = cell
    return list(cells.values())


class _Limits:
    """The limits of the records of one contest: they differ by journal, mask and pass alone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: dict[tuple[str, str, str], float | None] = {}

    def of(self, record: Record) -> float | None:
        place = record.env, record.mask_digest, record.pass_
        if place not in self._known:
            self._known[place] = self._limits.of(record)
        return self._known[place]


def _figures(entry: Entry, ranking: Ranking, limits: _Limits, records: Numbers) -> tuple[Any, ...]:
    """Records, how many masks its time is of, the speed and the mean time, their ends over several masks, and the share of the limit."""
    failed, own = NONE if entry.failed is None else records[id(entry.failed)], ranking.compared(entry)
    if own is None:
        return NONE, NONE, failed, 0, 0, None, None, None, None, None, None, None
    masks = len(own.figures)
    compared = 0 if ranking.is_elsewhere(entry) else len(ranking.masks) or masks
    ends = (*own.speeds, *own.times) if masks > 1 else (None, None, None, None)
    second, first = (NONE, *(records[id(record)] for record in own.nearest.records))[-2:]
    return first, second, failed, masks, compared, own.tflops, own.ms, *ends, share_of_limit(own.nearest, limits)


def share_of_limit(figure: Figure, limits: Limits | _Limits) -> float | None:
    """The time that tiles allow over the time that was measured; both add up over passes."""
    if len(figure.records) == 1:
        limit = limits.of(figure.records[0])
        return None if limit is None else figure.tflops / limit
    total = 0.0
    for record in figure.records:
        limit = limits.of(record)
        if limit is None:
            return None
        total += record.times.median * record.speed / limit
    return total / figure.ms


def _error(rows: Sequence[Row], records: Numbers) -> tuple[float | None, str | None, int]:
    worst = worst_error(rows)
    return (None, None, NONE) if worst is None else (worst.share, worst.tensor, records[id(worst.row.record)])


def encoded(cells: Sequence[PageCell]) -> dict[str, Any]:
    """Columns: numbers of records in 32 bits, everything else as its different values and their numbers."""
    columns: Iterable[tuple[Any, ...]] = zip(*cells, strict=True) if cells else [()] * len(PageCell._fields)
    whole = {"record", "second", "failed", "worst"}
    return {
        "count": len(cells),
        "columns": [
            [name.rstrip("_"), *((packed_numbers(values),) if name in whole else column(values, exact=name == "x"))]
            for name, values in zip(PageCell._fields, columns, strict=True)
        ],
    }


def record_numbers(records: Iterable[Record]) -> dict[int, int]:
    return {id(record): number for number, record in enumerate(records)}
