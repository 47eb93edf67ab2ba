"""The ranking of every mask, length and pass, how close each kernel stays to the fastest, and the order in which kernels are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from longca.results.naming import Contest, Row, contests, simpler_mask
from longca.results.points import grouped, line_of
from longca.results.problem import Pass
from longca.results.ranking import Ranking, entries, rank

STEPS = tuple(step / 100 for step in range(50, 101, 2))  # shares of the fastest speed at which a curve has a point


class Answer(NamedTuple):
    """One contest: its rows by line, and their ranking. A forward and a backward together are a contest, too."""

    contest: Contest
    rows: Mapping[str, Sequence[Row]]
    ranking: Ranking

    @property
    def first(self) -> Row:
        """Any of the rows: all have the same mask, length and ranks."""
        return next(iter(self.rows.values()))[0]

    @property
    def same(self) -> str | None:
        """A simpler mask that shows the same pairs, on every seed."""
        return simpler_mask(row for own in self.rows.values() for row in own)

    @property
    def measured(self) -> Mapping[str, Sequence[Row]]:
        """The rows of this very pass, by line; `rows` may be forwards and backwards that together make a contest."""
        if self.contest.pass_ is not Pass.BOTH:
            return self.rows
        whole = {line: [row for row in own if row.record.problem.pass_ is Pass.BOTH] for line, own in self.rows.items()}
        return {line: own for line, own in whole.items() if own}


def answers(rows: Iterable[Row]) -> list[Answer]:
    """An answer for each contest, and one for forward and backward together where both were measured apart."""
    places: dict[Contest, dict[Pass, list[Row]]] = {}
    for contest, own in contests(rows).items():
        places.setdefault(contest._replace(pass_=Pass.BOTH), {})[contest.pass_] = own
    return [
        Answer(place._replace(pass_=pass_), grouped(involved, line_of), rank(entries(involved, pass_)))
        for place, passes in places.items()
        for pass_ in Pass
        if (involved := _involved(passes, pass_))
    ]


def _involved(passes: Mapping[Pass, list[Row]], pass_: Pass) -> list[Row]:
    """The rows that a ranking of this pass is made of; none where it was not measured."""
    if pass_ is not Pass.BOTH:
        return passes.get(pass_, [])
    if pass_ in passes or all(part in passes for part in pass_.parts):
        return [row for own in passes.values() for row in own]
    return []


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


def shares_of_best(ranking: Ranking) -> dict[str, float]:
    """By line its speed as a share of the fastest, on the masks that it has; 1 for all that are as fast."""
    fewer = {out.line: min(1.0, out.share) for out in ranking.out if out.share is not None}
    return fewer | {standing.line: 1.0 if standing.equal else standing.against_best for standing in ranking.standings}
