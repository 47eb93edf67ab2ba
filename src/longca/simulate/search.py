"""Finds the best method, grid and options without simulating them all: only what can win, by the least time that each can take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from math import inf

from msgspec.structs import replace as changed

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.errors import Refused
from longca.results.grouping import grouped
from longca.results.metrics import GIB
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.simulate.bounds import Bound, bound_of, looks, quick_bound
from longca.simulate.cluster import Cluster
from longca.simulate.contest import AS_LONG, contests
from longca.simulate.forked import MANY_RANKS, cores, map_forked, map_longest_first
from longca.simulate.request import Request, jobs_of, plan_job
from longca.simulate.run import Simulated, simulate_plan, too_large, unsupported

AT_ONCE = 4  # plans that are simulated at the same time: each holds the programs of all ranks
NEAR = 0.1  # slower than the best by less than this: a method is simulated once, to say by how much
Show = Callable[[int], None]


class Candidate:
    """The passes of one plan, and what they take at least: roughly at first, and better once it is recorded."""

    def __init__(self, cells: list[Cell]) -> None:
        self.cells, self.plan = cells, plan_job(cells)
        self.quick = dict[Pass, float]()
        self.recorded: Bound | None = None

    @property
    def method(self) -> str:
        return self.plan.method.name

    @property
    def passes(self) -> list[Pass]:
        return [cell.problem.pass_ for cell in self.cells]

    @property
    def least(self) -> dict[Pass, float]:
        return {pass_: self.recorded.ms[pass_] for pass_ in self.passes} if self.recorded else self.quick

    @property
    def total(self) -> float:
        return sum(self.least[pass_] for pass_ in self.passes)

    def is_same(self, other: Candidate) -> bool:
        """Whether both do the same."""
        if self.recorded is None or other.recorded is None or len(self.cells) != len(other.cells):
            return False
        return self.recorded.is_same_program(other.recorded)

    def skipped(self) -> list[Simulated]:
        outcome = Outcome(status=Status.SKIPPED, reason="others are faster")
        return [Simulated(cell, outcome, None, self.least[cell.problem.pass_]) for cell in self.cells]


def search(request: Request, cluster: Cluster, show: Show = lambda number: None) -> Iterator[Simulated]:
    """Every cell of the request; those that cannot win have the least time that they take instead of a prediction.

    In each pack, everything is simulated that may take less time than the best of this pack; then, what may take less time in all packs
    together than the best of all packs."""
    packs = grouped(jobs_of(request.cells()), lambda cells: changed(cells[0].job, split=None))
    results = list[Simulated]()
    for found in map_longest_first(lambda jobs: PackSearch(jobs, cluster, show).run(), list(packs.values()), _area):
        results += found
        show(len(results))
    yield from complete(results, cluster, request)


def _area(jobs: Sequence[list[Cell]]) -> int:
    return mask_of(jobs[0][0].problem).area


class PackSearch:
    """The search in one pack: `done` are the results so far, `best` is the least time of each pass."""

    def __init__(self, jobs: Sequence[list[Cell]], cluster: Cluster, show: Show) -> None:
        self.jobs, self.cluster, self.show = jobs, cluster, show
        self.done, self.best = dict[Cell, Simulated](), dict[Pass, float]()
        self.candidates, self.tried = list[Candidate](), list[Candidate]()
        for cells in jobs:
            try:
                self.candidates.append(Candidate(cells))
            except Refused as refusal:
                self.note(unsupported(cells, refusal))
        alike = list(grouped(self.candidates, lambda candidate: (looks(candidate.plan), *candidate.passes)).values())
        many = any(candidate.plan.ranks >= MANY_RANKS for candidate in self.candidates)
        firsts = [own[0] for own in alike]
        for own, least in zip(alike, (map_forked if many else map)(self._quick_bound, firsts), strict=True):
            for candidate in own:
                candidate.quick = least

    def _quick_bound(self, candidate: Candidate) -> dict[Pass, float]:
        return quick_bound(candidate.plan, self.cluster, candidate.passes)

    def run(self) -> list[Simulated]:
        """Returns the results in the order of the cells."""
        for once in (False, True):
            waiting = [(candidate.total, number) for number, candidate in enumerate(self.candidates)]
            heapify(waiting)
            while chosen := self._next(waiting, once):
                found = map_forked(lambda own: simulate_plan(own.plan, own.cells, self.cluster), chosen)
                for candidate, results in zip(chosen, found, strict=True):
                    if self._can_win(candidate.least, once):  # it still can, beside those that were simulated with it
                        self.note(results)
                        self.tried.append(candidate)
        for candidate in self.candidates:
            if candidate.cells[0] not in self.done:
                self.note(candidate.skipped())
        return [self.done[cell] for cells in self.jobs for cell in cells]

    def note(self, results: Sequence[Simulated]) -> None:
        for result in results:
            self.done[result.cell] = result
            if result.prediction is not None:
                pass_ = result.cell.problem.pass_
                self.best[pass_] = min(self.best.get(pass_, inf), result.prediction.ms)
        self.show(len(self.done))

    def _can_win(self, least: dict[Pass, float], nearly: bool = False) -> bool:
        room = NEAR if nearly else -AS_LONG
        return any(ms < self.best.get(pass_, inf) * (1 + room) for pass_, ms in least.items())

    def _next(self, waiting: list[tuple[float, int]], once: bool) -> list[Candidate]:
        """The next plans to simulate at the same time; with `once`, one of each method without a time. What is found does not depend on how
        many they are: one that may be ruled out by another one of them is not recorded before."""
        methods = {cell.split.method for cell, result in self.done.items() if cell.split and result.prediction}
        chosen, later = list[Candidate](), list[tuple[float, int]]()
        while waiting and len(chosen) < min(cores(), AT_ONCE):
            total, number = heappop(waiting)
            candidate = self.candidates[number]
            if candidate.cells[0] in self.done or (once and candidate.method in methods) or not self._can_win(candidate.least, once):
                continue
            if candidate.recorded is None:
                if chosen:
                    later.append((total, number))
                    break
                candidate.recorded = bound_of(candidate.plan, self.cluster)
                heappush(waiting, (candidate.total, number))
            elif (twin := next(filter(candidate.is_same, self.tried), None)) is not None:
                self.note([replace(self.done[other], cell=cell) for other, cell in zip(twin.cells, candidate.cells, strict=True)])
            elif (peak := candidate.recorded.program.peak) > self.cluster.memory_gib * GIB and Pass.FWD not in candidate.passes:
                self.note([too_large(cell, peak, self.cluster) for cell in candidate.cells])
            elif any((once and candidate.method == other.method) or candidate.is_same(other) for other in chosen):
                later.append((total, number))
            else:
                chosen.append(candidate)
        for entry in later:
            heappush(waiting, entry)
        return chosen


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
