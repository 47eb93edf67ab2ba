"""Kernels that were much slower than the fastest at two shorter lengths: they are skipped at longer ones, where they would cost most."""

from __future__ import annotations

from collections import defaultdict
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
        self._ms: defaultdict[Problem, defaultdict[int, dict[Cell, float]]] = defaultdict(lambda: defaultdict(dict))
        for entry in planned:
            if entry.key in records:
                self.add(entry.cell, records[entry.key])

    def add(self, cell: Cell, record: Record) -> None:
        if record.ok:
            own = cell.with_problem(seqlen=1)
            self._ms[own.problem][cell.problem.seqlen][own] = record.times.median

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
        own, n = cell.with_problem(seqlen=1), cell.problem.seqlen
        ms = {length: by_kernel for length, by_kernel in self._ms[own.problem].items() if length < n and own in by_kernel}
        times = {length: ms[length][own] / min(ms[length].values()) for length in sorted(ms)[-LENGTHS:]}
        return {length: ratio for length, ratio in times.items() if ratio >= TIMES}
