"""Numbers for lines, from which the page and the figures make colours, markers and dashes: a kernel looks the same in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter

from longca.results.grouping import grouped
from longca.results.naming import Row

COLOURS, MARKERS, DASHES = 12, 11, 5  # without common divisors: kernels of one colour differ in marker and dash


def numbers(groups: Iterable[Sequence[str]]) -> dict[str, int]:
    """A number for each name. Names of one group, which can stand in one picture, get different colours as long as there are any."""
    chosen: dict[str, int] = {}
    together: dict[str, dict[str, None]] = {}  # by name those that it can stand beside
    for group in groups:
        for name in group:
            together.setdefault(name, {}).update(dict.fromkeys(group))
    for name, beside in together.items():
        taken = [chosen[other] for other in beside if other in chosen]
        free = sorted(set(range(max(COLOURS * MARKERS, len(chosen) + 1))) - set(chosen.values()))
        chosen[name] = min(free, key=lambda number: (sum(map(partial(_alike, number), taken)), number))
    return chosen


def _alike(number: int, other: int) -> int:
    """How hard it is to tell two numbers apart; a colour in common is worse than a marker, and that is worse than a dash."""
    return sum(weight * (number % count == other % count) for weight, count in ((3, COLOURS), (2, MARKERS), (1, DASHES)))


def line_groups(rows: Iterable[Row]) -> list[list[str]]:
    """Per setting the bases of its lines, which can stand in one picture. Those that have a time come first."""
    groups = []
    for own in grouped(rows, attrgetter("contest.setting")).values():
        timed = {row.base for row in own if row.record.ok}
        groups.append([*sorted(timed), *sorted({row.base for row in own} - timed)])
    return groups
