"""What an answer hangs on: the times of the best methods with other constants of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from longca.bench.plan.cell import Cell
from longca.simulate.cluster import Cluster, changed, constant
from longca.simulate.contest import AS_LONG, Contest, Entry
from longca.simulate.forked import map_forked
from longca.simulate.predict import predict
from longca.simulate.programs import Programs
from longca.simulate.request import plan_job

CONSTANTS = {  # what changes together; the first one is named with its value
    "host time": ("compute.host_us",),
    "link between nodes": ("between.gb_s",),
    "links in a node": ("inside.gb_s",),
    "compute": ("compute.forward_tflops", "compute.backward_tflops", "compute.memory_gb_s"),
}
FACTORS = (0.5, 2.0)
RIVALS, PACKS, MOST = 2, 3, 0.8  # methods beside the best; packs at most, and the part of the time from which they are enough


@dataclass(frozen=True)
class Change:
    """A constant times `factor` makes another method the best."""

    name: str
    factor: float
    value: float
    winner: Entry


@dataclass(frozen=True)
class Sensitivity:
    """`gains`: the part of the best one's time that twice as good a constant saves. `changes`: the least that makes another method win."""

    gains: dict[str, float]
    changes: list[Change]
    rivals: list[Entry]


def sensitivity(contest: Contest, cluster: Cluster) -> Sensitivity:
    """Of the best method and the next ones that take another time, in the packs that take most of the time."""
    rivals = [entry for entry in contest.by_method if contest.longer(entry) > AS_LONG][:RIVALS]
    entries, packs = [contest.best, *rivals], _longest(contest)
    names = [name for name in CONSTANTS if constant(cluster, CONSTANTS[name][0]) and not (name == "links in a node" and cluster.cores)]
    variants = [(name, factor) for name in names for factor in FACTORS]
    clusters = [cluster, *(_scaled(cluster, name, factor) for name, factor in variants)]
    cells = [entry.results[pack].cell for pack in packs for entry in entries]
    times = list(map_forked(lambda cell: _times(cell, clusters), cells))
    totals = [
        [sum(one[number] for one in times[place :: len(entries)]) for place in range(len(entries))] for number in range(len(clusters))
    ]
    usual, own = totals[0], dict(zip(variants, totals[1:], strict=True))
    better = {name: FACTORS[0] if name == "host time" else FACTORS[1] for name in names}
    gains = {name: 1 - own[name, better[name]][0] / usual[0] for name in names}
    changes = []
    for name in names:
        flips = [
            (flip, place)
            for place in range(1, len(entries))
            for factor in FACTORS
            if (flip := _flip(usual, own[name, factor], place, factor))
        ]
        if flips:
            factor, place = min(flips, key=lambda flip: abs(log(flip[0])))
            changes.append(Change(name, factor, factor * constant(cluster, CONSTANTS[name][0]), entries[place]))
    return Sensitivity(gains, sorted(changes, key=lambda change: abs(log(change.factor))), rivals)


def _longest(contest: Contest) -> list[int]:
    times = contest.best.times
    packs, order = list[int](), sorted(range(contest.packs), key=lambda pack: -times[pack])
    while order and len(packs) < PACKS and sum(times[pack] for pack in packs) < MOST * sum(times):
        packs.append(order.pop(0))
    return packs


def _scaled(cluster: Cluster, name: str, factor: float) -> Cluster:
    return changed(cluster, {each: factor * constant(cluster, each) for each in CONSTANTS[name]})


def _times(cell: Cell, clusters: Sequence[Cluster]) -> list[float]:
    """Milliseconds on each cluster."""
    programs = Programs.of(plan_job([cell]))
    return [predict(programs, cluster, cell.problem.pass_).ms for cluster in clusters]


def _flip(usual: Sequence[float], other: Sequence[float], place: int, factor: float) -> float | None:
    """The factor at which this entry overtakes the best: between 1 and `factor`, on a straight line in logarithms; None: it does not."""
    now, then = log(usual[place] / usual[0]), log(other[place] / other[0])
    return exp(log(factor) * now / (now - then)) if now >= 0 > then else None
