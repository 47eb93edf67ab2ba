"""What `longca.plan`, `longca.simulate`, `longca.validate_simulation` and `longca.calibrate` return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from longca.results.problem import Problem
from longca.results.shown import Part, Shown
from longca.simulate import cluster as clusters
from longca.simulate import words
from longca.simulate.against import Pair, measured_names
from longca.simulate.cluster import Cluster
from longca.simulate.contest import Contest, contests
from longca.simulate.errors import Trust, kind_of, margin, spread_of, trust_in, usual
from longca.simulate.fit import Fit
from longca.simulate.published import Point, Published
from longca.simulate.request import Request
from longca.simulate.run import Simulated
from longca.simulate.sensitivity import Sensitivity
from longca.simulate.table import Row


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What methods send, hold and compute: one row per method, grid, mask, length and pass."""

    planned: list[Row]
    splits: Request

    @property
    def ok(self) -> bool:
        """Whether some method can do this."""
        return any(not row.refusal for row in self.planned)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row.as_dict() for row in self.planned]

    def parts(self) -> list[Part]:
        return words.plan(self.planned, self.splits)


@dataclass(frozen=True, repr=False)
class Simulation(Shown):
    """Predicted times of methods on a cluster, one per method, grid, mask, length, pack and pass."""

    name: str
    cluster: Cluster
    splits: Request  # what was asked
    results: list[Simulated]
    with_best: bool = False
    kernel_named: bool = False
    written: int = 0  # records, into a journal
    workload: str = ""  # whose packs the results are of
    sensitivities: Mapping[int, Sensitivity] = field(default_factory=dict)  # by the place of a question

    @property
    def ok(self) -> bool:
        """Whether some method can do this."""
        return any(result.prediction is not None for result in self.results)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [result.as_dict(self.name) for result in self.results]

    @cached_property
    def contests(self) -> list[Contest]:
        """One for each number of GPUs, mask, length, shape and pass, over all packs; the fastest entry is first."""
        return contests(self.results, bool(self.workload), self.splits.layers)

    def trust(self, contest: Contest) -> dict[str, Trust]:
        """How far predictions of the best entry of each method may be off, on the kind of mask of the question that was compared least."""

        def error(problem: Problem) -> float:
            spread = trust_in(self.name, self.cluster, problem, contest.best.split).spread
            return math.inf if spread is None else spread.median

        kinds = {kind_of(result.cell.problem.mask): result.cell.problem for result in reversed(contest.best.results)}
        pack = max(kinds.values(), key=error)
        return {entry.split.method: trust_in(self.name, self.cluster, pack, entry.split) for entry in contest.by_method}

    def equals(self, contest: Contest) -> list[str]:
        """The methods that cannot be told from the best, by the errors of predictions."""
        trust, best = self.trust(contest), contest.best.split.method
        expected = usual(self.name, self.cluster, trust[best].kind)
        others = [entry for entry in contest.by_method if entry.split.method != best and entry.is_simulated]
        return [entry.name for entry in others if contest.longer(entry) <= margin([trust[best], trust[entry.split.method]], expected)]

    def parts(self) -> list[Part]:
        return words.simulation(self)


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Predictions beside measured records of ranks, or beside published figures of GPU clusters."""

    name: str  # of the cluster that they are predicted with
    cluster: Cluster
    pairs: list[Pair]
    published: tuple[Published, list[Point]] | None = None
    ok = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per measured record or published figure."""
        points = self.published[1] if self.published else []
        figures = [{**point.figure._asdict(), **point._asdict(), "error": point.error} for point in points]
        for row in figures:
            row["pass"] = row.pop("pass_").value
            del row["figure"]
        return figures + [
            {**measured_names(pair.record), "measured_ms": pair.record.times.median, "simulated_ms": pair.ms, "error": pair.error}
            for pair in self.pairs
        ]

    def to_json(self) -> dict[str, Any]:
        """Errors in short, and every published figure or measured record."""
        rows = self.rows
        spread = spread_of(row["error"] for row in rows)
        return {"cluster": self.name, "compared": len(rows), "error": spread.median, "nine_in_ten": spread.most, "points": rows}

    def parts(self) -> list[Part]:
        if self.published:
            return words.published(self.name, self.cluster, *self.published)
        return words.against(self.pairs, self.name)


@dataclass(frozen=True, repr=False)
class Calibrated(Shown):
    """A cluster, and the constants that were fitted to measurements."""

    cluster: Cluster
    fits: list[Fit]
    ok = True

    @property
    def toml(self) -> str:
        """The cluster as a file for `longca.simulate`."""
        return clusters.to_toml(self.cluster)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per fitted constant."""
        return [fit._asdict() for fit in self.fits]

    def parts(self) -> list[Part]:
        return [words.fit(fit) for fit in self.fits]
