"""Block patterns beside the dense mask that they are a part of, on the same device and shape (`Row.dense`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longca.results.grouping import grouped, timed_lines
from longca.results.naming import Row


def dense_beside(patterns: Iterable[Row], rows: Iterable[Row]) -> list[Row]:
    """The rows on the dense masks that these block patterns are a part of."""
    wanted = {row.dense for row in patterns if row.is_pattern}
    return [row for row in rows if row.dense in wanted and not row.is_pattern]


def only_beside(group: Sequence[Row], rows: Iterable[Row]) -> bool:
    """Whether a group is one kernel on dense masks that block patterns are compared with, and nothing else."""
    return len(timed_lines(group)) <= 1 and len(group) == len(dense_beside(rows, group))


def gains(rows: Iterable[Row]) -> dict[str, float]:
    """By the key of a record on a block pattern, how many times as fast it is as the fastest kernel on the dense mask."""
    timed, least = [row for row in rows if row.record.ok and row.dense], dict[object, float]()
    for row in timed:
        if not row.is_pattern:
            least[row.dense] = min(row.record.times.median, least.get(row.dense, float("inf")))
    return {row.record.key: least[row.dense] / row.record.times.median for row in timed if row.is_pattern and row.dense in least}


def dense_lines(patterns: Sequence[Row], rows: Iterable[Row], most: int) -> dict[str, list[Row]]:
    """Rows of the fastest kernels on the dense mask, by what their line is called; the fastest first."""
    lines = grouped([row for row in dense_beside(patterns, rows) if row.record.ok], lambda row: row.line)
    fastest = sorted(lines, key=lambda line: min(row.record.times.median for row in lines[line]))[:most]
    return {f"{line} on {lines[line][0].mask_name}": lines[line] for line in fastest}
