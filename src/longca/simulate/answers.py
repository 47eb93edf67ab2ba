"""What `longca.plan`, `longca.simulate`, `longca.validate_simulation` and `longca.calibrate` return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from longca.bench.plan.cell import Cell
from longca.results.shown import Part, Shown
from longca.simulate import best, validate, words
from longca.simulate import cluster as clusters
from longca.simulate.against import Pair, errors, measured_names
from longca.simulate.calibrate import Fit
from longca.simulate.cluster import Cluster
from longca.simulate.run import Simulated
from longca.simulate.table import Row
from longca.simulate.validate import Point, Published


@dataclass(frozen=True, repr=False)
class Plan(Shown):
    """What methods send, hold and compute: one row per method, grid, mask, length and pass."""

    planned: list[Row]
    cells: list[Cell]

    @property
    def ok(self) -> bool:
        """Whether some method can do this."""
        return any(not row.refusal for row in self.planned)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row.as_dict() for row in self.planned]

    def parts(self) -> list[Part]:
        return words.plan(self.planned, self.cells)


@dataclass(frozen=True, repr=False)
class Simulation(Shown):
    """Predicted times of methods on a cluster, one per method, grid, mask, length and pass."""

    name: str
    cluster: Cluster
    results: list[Simulated]
    with_best: bool = False
    kernel_named: bool = False
    written: int = 0  # records, into a journal

    @property
    def ok(self) -> bool:
        """Whether some method can do this."""
        return any(result.prediction is not None for result in self.results)

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [result.as_dict(self.name, self.cluster) for result in self.results]

    @property
    def best(self) -> list[Simulated]:
        """The fastest for each number of GPUs, mask, length, shape and pass."""
        return [group[0] for group in best.contests(self.results)]

    def parts(self) -> list[Part]:
        parts = words.simulation(self.results, self.name, self.cluster, self.kernel_named)
        return [*parts, "", *map(words.contest, best.contests(self.results))] if self.with_best else parts


@dataclass(frozen=True, repr=False)
class Validation(Shown):
    """Predictions beside measured records of ranks, and beside published figures of GPU clusters unless the records are the user's own."""

    pairs: list[Pair]
    name: str  # of the cluster that they are predicted with
    published: tuple[str, Cluster, Published, list[Point]] | None = None
    own: bool = False
    ok = True

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per measured record."""
        return [
            {**measured_names(pair.record), "measured_ms": pair.record.times.median, "simulated_ms": pair.ms, "error": pair.error}
            for pair in self.pairs
        ]

    def to_json(self) -> dict[str, Any]:
        """Errors in short, and every published figure and measured record."""
        by_ranks: dict[int, list[Pair]] = {}
        for pair in self.pairs:
            by_ranks.setdefault(pair.record.problem.ranks, []).append(pair)
        ranks = {count: _summary(pairs) for count, pairs in sorted(by_ranks.items())}
        gloo = {"cluster": self.name, **_summary(self.pairs), "ranks": ranks, "points": self.rows}
        if self.published is None:
            return {"gloo": gloo}
        name, _, figures, points = self.published
        plain = [{**point._asdict(), "pass_": point.pass_.value, "error": point.error} for point in points]
        return {"published": {"cluster": name, **validate.summary(points, figures), "points": plain}, "gloo": gloo}

    def parts(self) -> list[Part]:
        if self.own:
            return words.against(self.pairs, self.name)
        published = words.published(*self.published) if self.published else []
        origin = f"\nMeasured on two cores with gloo, and predicted with {self.name}:"
        return [*published, origin, *words.against(self.pairs, self.name, rows=False)]


def _summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    typical, most = errors(pairs)
    return {"records": len(pairs), "error": typical, "nine_in_ten": most}


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
