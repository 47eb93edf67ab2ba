"""Rows grouped once: each contest with its rows and its ranking. Page, Markdown, terminal, figures and `compare --kernel` read these
groups, so that a statistic is computed once and is the same wherever it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from longca.results.grouping import Key, grouped, line_of
from longca.results.naming import Contest, Row, Setting, rows, simpler_mask
from longca.results.problem import Pass
from longca.results.ranking import Ranking, entries, of_one_clock, rank
from longca.results.reading import Results

STEPS = tuple(step / 100 for step in range(50, 101, 2))  # shares of the fastest speed at which a curve has a point


class Group(NamedTuple):
    """One contest: the rows of this very pass, all rows that the ranking is made of by line (of a forward and a backward together those of
    both), and the ranking."""

    contest: Contest
    rows: list[Row]
    lines: Mapping[str, Sequence[Row]]
    ranking: Ranking
    same: str | None  # a simpler mask that shows the same pairs, on every seed

    @property
    def first(self) -> Row:
        """Any of the rows: all have the same mask, length and ranks."""
        return next(iter(self.lines.values()))[0]

    @property
    def measured(self) -> Mapping[str, Sequence[Row]]:
        """The rows of this very pass, by line."""
        return self.lines if self.contest.pass_ is not Pass.BOTH else grouped(self.rows, line_of)


@dataclass(frozen=True)
class Groups:
    """The rows of a call, and a group for each contest: one mask, length and pass, and forward and backward together where both were
    measured apart."""

    rows: list[Row]
    every: list[Group]

    @property
    def measured(self) -> list[Group]:
        """The groups that have rows of their own pass."""
        return [group for group in self.every if group.rows]

    def by(self, key: Callable[[Contest], Key]) -> dict[Key, Groups]:
        """The same by what contests have in common."""
        rows = grouped(self.rows, lambda row: key(row.contest))
        return {name: Groups(rows.get(name, []), own) for name, own in grouped(self.every, lambda group: key(group.contest)).items()}

    @property
    def settings(self) -> dict[Setting, Groups]:
        return self.by(attrgetter("setting"))

    @property
    def passes(self) -> dict[Pass, Groups]:
        """By pass as far as it has rows, forward first."""
        own = self.by(attrgetter("pass_"))
        return {pass_: own[pass_] for pass_ in Pass if pass_ in own and own[pass_].rows}

    @property
    def tables(self) -> dict[Contest, Groups]:
        """By all but the mask and the length, which are the rows and the columns of a table."""
        return self.by(lambda contest: contest._replace(mask_name="", seqlen=0))

    @cached_property
    def compared(self) -> list[Row]:
        """The rows without times that a ranking does not count: those on masks on which it does not compare kernels, and all but one of
        several records of a kernel on a mask. Speeds over what is left are those of the ranking."""
        counted = {record.key for group in self.measured for entry in group.ranking.compared.values() for record in entry.records}
        return [row for row in self.rows if not row.record.ok or row.record.key in counted]


def groups_of(results: Results) -> Groups:
    """The records of journals, named and grouped."""
    return group_rows(rows(results))


def group_rows(named: Iterable[Row]) -> Groups:
    every = list(named)
    for numbers in grouped(range(len(every)), lambda number: every[number].contest).values():
        for number, row in zip(numbers, of_one_clock([every[number] for number in numbers]), strict=True):
            every[number] = row
    places: dict[Contest, dict[Pass, list[Row]]] = {}
    for contest, own in grouped(every, lambda row: row.contest).items():
        places.setdefault(contest._replace(pass_=Pass.BOTH), {})[contest.pass_] = own
    return Groups(every, [_group(place._replace(pass_=pass_), own) for place, own in places.items() for pass_ in Pass if _has(own, pass_)])


def _has(passes: Mapping[Pass, list[Row]], pass_: Pass) -> bool:
    return pass_ in passes or all(part in passes for part in pass_.parts)


def _group(contest: Contest, passes: Mapping[Pass, list[Row]]) -> Group:
    own = passes.get(contest.pass_, [])
    involved = [row for rows in passes.values() for row in rows] if contest.pass_ is Pass.BOTH else own
    return Group(contest, own, grouped(involved, line_of), rank(entries(involved, contest.pass_)), simpler_mask(involved))


class Closeness(NamedTuple):
    """How close one kernel is to the fastest over many contests: the mean share of its speed, and a curve over `STEPS`,
    whose last point is the share of contests that it wins or ties."""

    mean: float
    curve: list[float]


def closeness(found: Sequence[Mapping[str, float]]) -> dict[str, Closeness]:
    """By kernel, the one that is fastest most often first: in what share of the contests its speed is at least each step of the fastest
    speed. A contest in which a kernel has no rank counts as 0. `found` has a mapping per contest: shares of the fastest speed by kernel."""
    shares: dict[str, list[float]] = {}
    for contest in found:
        for name, share in contest.items():
            shares.setdefault(name, []).append(share)
    count, curves = len(found), {}
    for name, own in shares.items():
        reached = np.array(own)[:, None] >= STEPS
        curves[name] = Closeness(sum(own) / count, (reached.sum(axis=0) / count).tolist())
    return dict(sorted(curves.items(), key=lambda entry: (-entry[1].curve[-1], -entry[1].mean, entry[0])))
