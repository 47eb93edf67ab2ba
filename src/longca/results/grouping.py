"""Rows by what they have in common, and block patterns beside the dense mask that they are a part of (`Row.dense`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from longca.results.naming import Row

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Names = Callable[["Row"], str]

line_of: Names = attrgetter("line")


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Rows, or whatever it is, by a key, in the order in which keys come first."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(groups)


def timed_lines(rows: Iterable[Row], series: Names = line_of) -> list[str]:
    """Lines that have a time: a legend or a table of the others would be empty."""
    return sorted({series(row) for row in rows if row.record.ok})


def at_longest(rows: Sequence[Row], key: Callable[[Row], Hashable]) -> list[Row]:
    """Of each group the rows at its longest length."""
    longest = {name: max(row.record.problem.seqlen for row in group) for name, group in grouped(rows, key).items()}
    return [row for row in rows if row.record.problem.seqlen == longest[key(row)]]


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
