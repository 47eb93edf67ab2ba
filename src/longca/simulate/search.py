"""Finds the best method, grid and options without simulating them all: only what can win, by the least time that each can take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from msgspec.structs import replace as changed

from longca.bench.plan.cell import Cell
from longca.errors import Refused
from longca.results.metrics import GIB
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.simulate.bounds import Bound, bound_of, quick_bound
from longca.simulate.cluster import Cluster
from longca.simulate.contest import AS_LONG, contests
from longca.simulate.forked import map_forked
from longca.simulate.request import Request, jobs_of, plan_job
from longca.simulate.run import Simulated, simulate_plan, too_large, unsupported

NEAR = 0.1  # slower than the best by less than this: a method is simulated once, to say by how much
Show = Callable[[int], None]


class Candidate:
    """The passes of one plan, and what they take at least: roughly at first, and better once it is recorded."""

    def __init__(self, cells: list[Cell], cluster: Cluster) -> None:
        self.cells, self.plan = cells, plan_job(cells)
        self.least = quick_bound(self.plan, cluster, self.passes)
        self.recorded: Bound | None = None

    @property
    def passes(self) -> list[Pass]:
        return [cell.problem.pass_ for cell in self.cells]

    @property
    def total(self) -> float:
        return sum(self.least[pass_] for pass_ in self.passes)

    def skipped(self) -> list[Simulated]:
        return [
            Simulated(cell, Outcome(status=Status.SKIPPED, reason="others are faster"), None, self.least[cell.problem.pass_])
            for cell in self.cells
        ]


def search(request: Request, cluster: Cluster, show: Show = lambda number: None) -> Iterator[Simulated]:
    """Every cell of the request; those that cannot win have the least time that they take instead of a prediction.

    In each pack, everything is simulated that may take less time than the best of this pack; then, what may take less time in all packs
    together than the best of all packs."""
    packs: dict[Cell, list[list[Cell]]] = {}
    for cells in jobs_of(request.cells()):
        packs.setdefault(changed(cells[0].job, split=None), []).append(cells)
    results = list[Simulated]()
    for found in map_forked(lambda jobs: search_pack(jobs, cluster, show), list(packs.values())):
        results += found
        show(len(results))
    yield from complete(results, cluster, request)


def search_pack(jobs: Sequence[list[Cell]], cluster: Cluster, show: Show = lambda number: None) -> list[Simulated]:
    """The results of one pack, in the order of its cells."""
    candidates, done = list[Candidate](), dict[Cell, Simulated]()
    for cells in jobs:
        try:
            candidates.append(Candidate(cells, cluster))
        except Refused as refusal:
            done |= {result.cell: result for result in unsupported(cells, refusal)}
    best, tried, methods = dict[Pass, float](), list[Candidate](), set[str]()

    def can_win(candidate: Candidate, room: float = -AS_LONG) -> bool:
        return any(candidate.least[pass_] < best.get(pass_, float("inf")) * (1 + room) for pass_ in candidate.passes)

    def attempt(candidate: Candidate, bound: Bound) -> None:
        twin = next((other for other in tried if other.recorded and bound.is_same_program(other.recorded)), None)
        if twin is not None and len(twin.cells) == len(candidate.cells):
            results = [replace(done[other], cell=cell) for other, cell in zip(twin.cells, candidate.cells, strict=True)]
        elif bound.program.peak > cluster.memory_gib * GIB and Pass.FWD not in candidate.passes:
            results = [too_large(cell, bound.program.peak, cluster) for cell in candidate.cells]
        else:
            results = simulate_plan(candidate.plan, candidate.cells, cluster)
            tried.append(candidate)
        for result in results:
            done[result.cell] = result
            if result.prediction is not None:
                pass_ = result.cell.problem.pass_
                best[pass_] = min(best.get(pass_, float("inf")), result.prediction.ms)
        show(len(done))

    for once in (False, True):
        waiting = [(candidate.total, number) for number, candidate in enumerate(candidates)]
        heapify(waiting)
        while waiting:
            candidate = candidates[number := heappop(waiting)[1]]
            method = candidate.plan.method.name
            if candidate.cells[0] in done or (once and method in methods) or not can_win(candidate, NEAR if once else -AS_LONG):
                continue
            if candidate.recorded is None:
                candidate.recorded = bound_of(candidate.plan, cluster)
                candidate.least = candidate.recorded.ms
                heappush(waiting, (candidate.total, number))
                continue
            attempt(candidate, candidate.recorded)
            methods |= {method} & {cell.split.method for cell, result in done.items() if cell.split and result.prediction}
    for candidate in candidates:
        if candidate.cells[0] not in done:
            done |= {result.cell: result for result in candidate.skipped()}
    return [done[cell] for cells in jobs for cell in cells]


def complete(results: list[Simulated], cluster: Cluster, request: Request) -> list[Simulated]:
    """The results, with those simulated too that may be the best of all packs of a question, and then one of each method that may be
    nearly as fast."""
    while True:
        questions = contests(results, bool(request.steps), request.layers)
        wanted = [contest.best for contest in questions if not contest.best.is_simulated]
        wanted = wanted or [entry for contest in questions for entry in contest.by_method if contest.longer(entry) < NEAR]
        missing = [result.cell for entry in wanted for result in entry.results if result.least_ms is not None]
        if not missing:
            return results
        simulated = map_forked(lambda cells: simulate_plan(plan_job(cells), cells, cluster), jobs_of(missing))
        found = {result.cell: result for several in simulated for result in several}
        results = [found.get(result.cell, result) for result in results]
