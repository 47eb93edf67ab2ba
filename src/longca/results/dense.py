"""Block patterns beside the dense mask that they are a part of, on the same device and shape."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from longca.masks import dense_of
from longca.results.naming import Row
from longca.results.points import grouped, timed_lines
from longca.results.record import Record

Place = tuple[Hashable, ...]


def dense_beside(patterns: Iterable[Row], rows: Iterable[Row]) -> list[Row]:
    """The timed rows on the dense masks that these block patterns are a part of."""
    return [row for row in _compared(rows, patterns) if row.record.ok]


def only_beside(group: Sequence[Row], rows: Iterable[Row]) -> bool:
    """Whether a group is one kernel on dense masks that block patterns are compared with, and nothing else."""
    return all(row.is_dense for row in group) and len(timed_lines(group)) <= 1 and len(group) == len(_compared(group, rows))


def _compared(rows: Iterable[Row], patterns: Iterable[Row]) -> list[Row]:
    """The rows on a dense mask that a block pattern of the same shape, pass and length is a part of."""
    wanted = {_place(row, dense_of(row.record.problem.source)) for row in patterns if row.is_pattern}
    return [row for row in rows if row.is_dense and _place(row, row.record.problem.mask) in wanted]


class DenseTimes:
    """The least time of the dense masks, by what block patterns must share with them to be compared."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._least: dict[Place, float] = {}
        for row in rows:
            if row.is_dense and row.record.ok:
                place = _place(row, row.record.problem.mask)
                self._least[place] = min(row.record.times.median, self._least.get(place, float("inf")))

    def gain(self, row: Row, record: Record) -> float | None:
        """How many times as fast a record on a block pattern is as the dense mask; None for other masks, or without a dense time."""
        least = self._least.get(_place(row, dense_of(record.problem.source))) if row.is_pattern else None
        return None if least is None else least / record.times.median


def _place(row: Row, mask: str) -> Place:
    """What a block pattern shares with the dense mask that it is compared with."""
    problem = row.record.problem
    return (
        mask,
        row.contest.setting.device,
        row.contest.setting.operator,
        problem.pass_,
        problem.seqlen,
        problem.ranks,
        row.record.simulated,
    )


def dense_lines(patterns: Sequence[Row], rows: Iterable[Row], most: int) -> dict[str, list[Row]]:
    """Rows of the fastest kernels on the dense mask, by what their line is called; the fastest first."""
    lines = grouped(dense_beside(patterns, rows), lambda row: row.line)
    fastest = sorted(lines, key=lambda line: min(row.record.times.median for row in lines[line]))[:most]
    return {f"{line} on {lines[line][0].mask_name}": lines[line] for line in fastest}
