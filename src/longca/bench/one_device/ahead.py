"""Compiles the kernels of later jobs in processes of their own, while a worker is busy with other jobs.

What a compiler makes stays on disk, where the worker finds it. Compilers need cores, and call their kernels once on the device, so they
are stopped before samples are taken: from the check on, because a call that a stopped process has made already still runs to its end.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from longca.bench.one_device.messages import WorkerJob
from longca.bench.plan.jobs import Job
from longca.processes.child import Child
from longca.processes.lost import ChildLost

CORES, MOST = 4, 4  # of the host for each compiler, and compilers
LONGEST = 32 << 10  # tokens: longer problems may need all of the device's memory
QUICK_S = 2.0  # a kernel that is ready in less at a second length compiles nothing there


def number_of_compilers() -> int:
    """None on a small host: they would take the cores of the worker."""
    return max(0, min(MOST, len(os.sched_getaffinity(0)) // CORES - 1))


class Compilers:
    """Takes jobs in their order; `enter` is called with each phase of the worker that measures."""

    def __init__(self, jobs: Iterable[Job], start: Callable[[], Child], number: int) -> None:
        self._left = deque(job for job in jobs if job.cell.problem.seqlen <= LONGEST)
        self._busy: dict[Child, tuple[Job, float]] = {}
        self._quick = set[tuple[str, str]]()  # kernels and masks that need no compiling at other lengths
        self._lengths = dict[tuple[str, str], int]()  # the first one of each
        self._children = [start() for _ in range(min(number, len(self._left) - 1))]  # the worker begins the first job itself
        self._stopped = False

    def reached(self, job: Job) -> None:
        """Leaves out a job that the worker begins itself."""
        with suppress(ValueError):
            self._left.remove(job)

    def enter(self, phase: str) -> None:
        """Stops compilers while the worker checks and takes samples, and gives those that are done their next jobs."""
        if (phase != "build") != self._stopped:
            self._stopped = phase != "build"
            for child in self._children:
                child.pause() if self._stopped else child.resume()
        if not self._stopped:
            for child in list(self._children):
                self._look_after(child)

    def _look_after(self, child: Child) -> None:
        try:
            child.step(0)
            if child.busy:
                return
            self._note_done(child)
            job = self._next()
            if job is None:
                self._drop(child)
                return
            cells, digest = [entry.cell for entry in job.planned], job.planned[0].mask.digest
            child.send(msgspec.to_builtins(WorkerJob(cells=cells, digest=digest, compile_only=True)), "build")
            self._busy[child] = job, time.monotonic()
        except ChildLost:  # what harms a compiler harms the worker too, and is recorded there
            self._drop(child)

    def _note_done(self, child: Child) -> None:
        job, since = self._busy.pop(child, (None, 0.0))
        if job is None:
            return
        kernel_and_mask = job.cell.kernel, job.cell.problem.mask
        if self._lengths.setdefault(kernel_and_mask, job.cell.problem.seqlen) != job.cell.problem.seqlen:
            self._quick |= {kernel_and_mask} if time.monotonic() - since < QUICK_S else set()

    def _next(self) -> Job | None:
        while self._left:
            job = self._left.popleft()
            if (job.cell.kernel, job.cell.problem.mask) not in self._quick:
                return job
        return None

    def _drop(self, child: Child) -> None:
        self._children.remove(child)
        child.end()
        child.close()

    def close(self) -> None:
        for child in self._children:
            child.end()
        for child in list(self._children):
            self._drop(child)
