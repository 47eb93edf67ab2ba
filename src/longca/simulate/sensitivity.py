"""What an answer hangs on: the times of the best methods with other constants of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, log

from longca.simulate.bounds import bound_of, least_ms
from longca.simulate.cluster import Cluster, changed, constant
from longca.simulate.contest import AS_LONG, Contest, Entry
from longca.simulate.forked import map_forked
from longca.simulate.predict import predict
from longca.simulate.programs import Programs, record_job
from longca.simulate.request import plan_job

CONSTANTS = {  # what changes together; the first one is named with its value
    "host time": ("compute.host_us",),
    "links between nodes": ("between.gb_s",),
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
    slower = [entry for entry in contest.by_method if contest.longer(entry) > AS_LONG]
    times = [entry.times if entry.is_simulated else None for entry in slower]
    rivals = [entry for number, entry in enumerate(slower) if times[number] is None or times[number] not in times[:number]][:RIVALS]
    packs = _longest(contest)
    names = [name for name in CONSTANTS if constant(cluster, CONSTANTS[name][0]) and not (name == "links in a node" and cluster.cores)]
    variants = {(name, factor): _scaled(cluster, name, factor) for name in names for factor in FACTORS}
    usual = _total(contest.best, packs, cluster)
    best = dict(zip(variants, _totals(contest.best, packs, list(variants.values())), strict=True))
    better = {name: FACTORS[0] if name == "host time" else FACTORS[1] for name in names}
    changes = dict[str, Change]()
    for rival in rivals:
        least = dict(zip(variants, _least(rival, packs, list(variants.values())), strict=True))
        possible = [key for key in variants if least[key] < best[key]]
        own = _total(rival, packs, cluster) if possible else 0.0
        wanted = [key for key in possible if _may_win(own, best[key], key[1] == better[key[0]])]
        for (name, factor), time in zip(wanted, _totals(rival, packs, [variants[key] for key in wanted]), strict=True):
            flip = _flip(own / usual, time / best[name, factor], factor)
            if flip is not None and (name not in changes or abs(log(flip)) < abs(log(changes[name].factor))):
                changes[name] = Change(name, flip, flip * constant(cluster, CONSTANTS[name][0]), rival)
    gains = {name: 1 - best[name, better[name]] / usual for name in names}
    return Sensitivity(gains, sorted(changes.values(), key=lambda change: abs(log(change.factor))), rivals)


def _may_win(rival: float, best: float, is_better: bool) -> bool:
    """Whether a rival may take less than the best with another constant: a worse one makes nothing faster, and one that is twice as good
    makes nothing more than twice as fast."""
    return rival / 2 < best if is_better else rival < best


def _longest(contest: Contest) -> list[int]:
    times = contest.best.times
    packs, order = list[int](), sorted(range(contest.packs), key=lambda pack: -times[pack])
    while order and len(packs) < PACKS and sum(times[pack] for pack in packs) < MOST * sum(times):
        packs.append(order.pop(0))
    return packs


def _scaled(cluster: Cluster, name: str, factor: float) -> Cluster:
    return changed(cluster, {each: factor * constant(cluster, each) for each in CONSTANTS[name]})


def _total(entry: Entry, packs: Sequence[int], cluster: Cluster) -> float:
    """Milliseconds of these packs together, which are known already where they were simulated."""
    return sum(entry.times[pack] for pack in packs) if entry.is_simulated else _totals(entry, packs, [cluster])[0]


def _least(entry: Entry, packs: Sequence[int], clusters: Sequence[Cluster]) -> list[float]:
    """The least milliseconds that these packs together can take on each cluster."""
    results = [result for pack in packs for result in entry.by_pack[pack]]
    plans = [(plan_job([result.cell]), result.cell.problem.pass_, entry.weight(result)) for result in results]
    programs = [bound_of(plan, clusters[0]).program for plan, _, _ in plans]

    def total(cluster: Cluster) -> float:
        return sum(weight * least_ms(program, cluster)[pass_] for (_, pass_, weight), program in zip(plans, programs, strict=True))

    return list(map(total, clusters))


def _totals(entry: Entry, packs: Sequence[int], clusters: Sequence[Cluster]) -> list[float]:
    """Milliseconds of these packs together on each cluster; without end where a kernel refuses its calls."""
    if not clusters:
        return []
    results = [result for pack in packs for result in entry.by_pack[pack]]
    recorded = [programs for result in results if isinstance(programs := record_job([result.cell]), Programs)]
    if len(recorded) < len(results):
        return [inf] * len(clusters)
    pass_ = results[0].cell.problem.pass_
    replays = [(programs, cluster) for cluster in clusters for programs in recorded]
    times = list(map_forked(lambda replay: predict(*replay, pass_).ms, replays))
    parts = [times[start : start + len(results)] for start in range(0, len(times), len(results))]
    return [sum(entry.weight(result) * ms for result, ms in zip(results, part, strict=True)) for part in parts]


def _flip(now: float, then: float, factor: float) -> float | None:
    """The factor at which a rival overtakes the best, from the ratio of their times now and then: between 1 and `factor`, on a straight
    line in logarithms; None: it does not."""
    return exp(log(factor) * log(now) / (log(now) - log(then))) if now >= 1 > then else None
