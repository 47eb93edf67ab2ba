"""Rows by what they have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import TypeVar

from longca.results.naming import Row

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
Names = Callable[[Row], str]

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
