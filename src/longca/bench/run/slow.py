"""Kernels that were much slower than the fastest at two shorter lengths: they are skipped at longer ones, where they would cost most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import Planned
from longca.bench.plan.jobs import Job
from longca.results.problem import Problem
from longca.results.record import Record
from longca.text import format_size

TIMES = 3.0  # slower than the fastest
LENGTHS = 2  # shorter ones, at each of which it was so


class SlowKernels:
    """The times of a run by what is compared: the same mask, shape and seed at every length."""

    def __init__(self, planned: Sequence[Planned], records: Mapping[str, Record]) -> None:
        self._ms: dict[Problem, dict[int, dict[Cell, float]]] = {}
        for entry in planned:
            if entry.key in records:
                self.add(entry.cell, records[entry.key])

    def add(self, cell: Cell, record: Record) -> None:
        if record.ok:
            lengths = self._ms.setdefault(_any_length(cell).problem, {})
            lengths.setdefault(cell.problem.seqlen, {})[_any_length(cell.job)] = record.times.median

    def reason(self, job: Job) -> str:
        """Why a job is skipped; empty where it runs. Each of its passes must have been slow."""
        slow = [self._slow_lengths(entry.cell) for entry in job.planned]
        if min(map(len, slow)) < LENGTHS:
            return ""
        least = min(times for lengths in slow for times in lengths.values())
        lengths = " and ".join(format_size(n) for n in sorted(slow[0])[-LENGTHS:])
        return f"at least {least:.1f} times slower than the fastest kernel at {lengths} tokens: skipped beyond; --full runs it"

    def _slow_lengths(self, cell: Cell) -> dict[int, float]:
        """The shorter lengths at which the cell's kernel was slow, if it was so at each of the longest of them, and how many times."""
        lengths = self._ms.get(_any_length(cell).problem, {})
        own = _any_length(cell.job)
        times = {
            n: by_kernel[own] / min(by_kernel.values()) for n, by_kernel in lengths.items() if n < cell.problem.seqlen and own in by_kernel
        }
        longest = sorted(times)[-LENGTHS:]
        return {n: times[n] for n in longest if times[n] >= TIMES}


def _any_length(cell: Cell) -> Cell:
    return cell.with_problem(seqlen=1)
