"""From planned cells to jobs: in which order, and which of them are done already.

A job is what one worker does at once: the passes of one kernel on one problem. Problems follow one another, and within a problem the
kernels: so the reference of a problem is made once and dropped when the next one begins.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from msgspec.structs import replace as change

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned, mask_outline
from longca.errors import BadInput
from longca.results.problem import Pass, Problem
from longca.results.record import RETRIED, Record, Status
from longca.text import short


@dataclass(frozen=True)
class Job:
    """Passes of one kernel on one problem; `last` says that nothing more comes for this problem in this worker."""

    planned: tuple[Planned, ...]
    worker: str
    last: bool = True
    reference_grad: bool = True  # whether the problem's reference has gradients: also where the forward is run alone

    @property
    def cell(self) -> Cell:
        return self.planned[0].cell

    @property
    def passes(self) -> list[Pass]:
        return [entry.cell.problem.pass_ for entry in self.planned]

    def only(self, passes: Collection[Pass]) -> Job:
        """The job with these passes of it."""
        return replace(self, planned=tuple(entry for entry in self.planned if entry.cell.problem.pass_ in passes))

    @property
    def forward_alone(self) -> Job:
        """The job without its backward passes, and without what a forward keeps for them."""
        forward = self.only([Pass.FWD]).planned
        return replace(self, planned=tuple(replace(entry, cell=change(entry.cell, grad=False)) for entry in forward))


def make_jobs(planned: Iterable[Planned], workers: str = "kernel") -> list[Job]:
    """Jobs grouped by problem, then by worker, so that `last` can tell a worker when a problem is over for it."""
    problems: dict[Problem, dict[Cell, list[Planned]]] = {}
    for entry in planned:
        problems.setdefault(entry.cell.problem.every_pass, {}).setdefault(entry.cell.job, []).append(entry)
    jobs: list[Job] = []
    for kernels in problems.values():
        by_worker: dict[str, list[Job]] = {}
        for passes in kernels.values():
            name = worker_of(passes[0].cell, workers)
            by_worker.setdefault(name, []).append(Job(tuple(passes), name, False, passes[0].cell.grad))
        for name in sorted(by_worker):
            *others, final = by_worker[name]
            jobs += [*others, replace(final, last=True)]
    return jobs


def worker_of(cell: Cell, workers: str) -> str:
    """The name of the worker that runs a cell: one per kernel, shared by its variants; or one for all."""
    return f"{cell.level}/{cell.kernel.partition(':')[0]}" if workers == "kernel" else str(cell.level)


def shard(planned: list[Planned], text: str) -> list[Planned]:
    """'3/8': the third of eight parts of about the same cost. A problem stays whole, so that its kernels are compared on one machine."""
    try:
        part, parts = (int(number) for number in text.split("/"))
    except ValueError:
        part = parts = 0
    if not 1 <= part <= parts:
        raise BadInput(f"{short(text, 40)!r} is not a shard; write one such as 3/8, from 1/8 to 8/8.")
    problems = {entry.cell.problem.every_pass: mask_outline(entry.cell.problem).area for entry in planned}  # the same in a dry run
    by_cost = sorted(problems, key=lambda problem: -problems[problem])  # a stable sort: every machine deals the same way
    mine = set(by_cost[part - 1 :: parts])
    return [entry for entry in planned if entry.cell.problem.every_pass in mine]


def left_to_do(planned: list[Planned], records: Mapping[str, Record], *, retry: bool = False, full: bool = False) -> list[Planned]:
    """The cells that a journal does not hold yet, and those it should try again."""

    def undone(entry: Planned) -> bool:
        record = records.get(entry.key)
        if record is None or (retry and record.status in RETRIED):
            return True
        return full and record.status is Status.SKIPPED

    return [entry for entry in planned if undone(entry)]
