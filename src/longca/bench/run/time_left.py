"""The time that a run still needs: the estimates of the cells that are left, corrected by what the cells before them really took."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from longca.bench.plan.cell import Cell
from longca.results.problem import Pass
from longca.results.record import NEVER_RAN, Record, Status

# measuring that is taken to have gone as estimated: the first cells, which compile and import, do not change the estimate of all
TRUST_S = 2.0
TRUST = 0.05  # of the whole run


@dataclass
class RunningJob:
    """The passes of a job that have ended: its seconds until now, and those of them that were spent on compiling."""

    cell: Cell
    elapsed_s: float = 0.0
    compile_s: dict[Pass, float] = field(default_factory=dict)

    @property
    def compiling_s(self) -> float:
        both, parts = self.compile_s.get(Pass.BOTH, 0.0), sum(self.compile_s.get(part, 0.0) for part in (Pass.FWD, Pass.BWD))
        return min(self.elapsed_s, max(both, parts))


class Compiling:
    """What kernels spend on compiling, per job. The first job of a kernel, which also imports and tunes, says nothing about the others."""

    def __init__(self, cells: Mapping[str, Cell]) -> None:
        self._left = {cell.job for cell in cells.values()}
        self._done, self._later_s = Counter[str](), defaultdict[str, float](float)

    def begun(self, kernel: str) -> None:
        self._done[kernel] += 1

    def ended(self, job: Cell) -> None:
        """Takes a job from those that are left, whether it ran or not."""
        self._left.discard(job)

    def spent(self, kernel: str, seconds: float) -> None:
        if self._done[kernel] > 1:
            self._later_s[kernel] += seconds

    def left_s(self, without: set[str]) -> float:
        """Returns the seconds that the jobs which are left will compile, if they are as those before; without those of some kernels."""
        left = Counter(job.kernel for job in self._left)
        return sum(self._later_s[name] / (self._done[name] - 1) * left[name] for name in self._later_s if name not in without)


class TimeLeft:
    """Cells are weighed by their estimates, not counted: the last length of a suite may take longer than all others together.

    A kernel that did not run a mask at one length is expected not to run it at the others, until it does; one that is not available
    runs no mask. Estimates have no time for compiling, which depends on what a cache on disk holds: it is learned for each kernel.
    """

    def __init__(self, estimates: Mapping[str, float], cells: Mapping[str, Cell], now: Callable[[], float] = time.monotonic) -> None:
        """Seconds of each cell by its key, and the cell."""
        self._estimates, self._now = dict(estimates), now
        self._lines = {key: cell.with_problem(seqlen=1, seed=0, documents=None) for key, cell in cells.items()}
        self._seeds: defaultdict[Cell, set[int]] = defaultdict(set)
        for key, cell in cells.items():
            self._seeds[self._lines[key]].add(cell.problem.seed)
        self._left: defaultdict[Cell, float] = defaultdict(float)  # seconds as estimated, of the same work at all lengths
        for key, estimate in self._estimates.items():
            self._left[self._lines[key]] += estimate
        self._idle, self._missing = set[Cell](), set[str]()  # what did not run when it was last tried, and kernels that are not available
        self._estimated = self._measured = max(TRUST_S, TRUST * sum(self._estimates.values()))
        self._jobs, self._compiling = {key: cell.job for key, cell in cells.items()}, Compiling(cells)
        self._running: RunningJob | None = None
        self._last = now()

    def finished(self, record: Record) -> None:
        estimate, now, line = self._estimates.pop(record.key), self._now(), self._lines[record.key]
        self._left[line] -= estimate
        self._compiling.ended(self._jobs[record.key])
        if record.status not in NEVER_RAN:
            self._estimated += estimate
            self._measured += now - self._last - self._compiled(record, now - self._last)
            self._idle.discard(line)
        else:
            self._idle.add(line)
            if record.status is Status.UNAVAILABLE:
                self._missing.add(line.kernel)
        self._last = now

    def _compiled(self, record: Record, elapsed_s: float) -> float:
        """Returns the seconds of compiling that this record adds to those of its job; they say nothing about the speed of other cells."""
        job = self._jobs[record.key]
        if self._running is None or self._running.cell != job:
            self._running = RunningJob(job)
            self._compiling.begun(job.kernel)
        before = self._running.compiling_s
        self._running.elapsed_s += elapsed_s
        self._running.compile_s[record.problem.pass_] = (record.compile_ms or 0.0) / 1e3
        seconds = self._running.compiling_s - before
        self._compiling.spent(job.kernel, seconds)
        return seconds

    def has_several_seeds(self, record: Record) -> bool:
        """Whether the run has the same work with other seeds, which only their numbers tell apart."""
        return len(self._seeds[self._lines[record.key]]) > 1

    @property
    def seconds(self) -> float:
        """The seconds left at this moment."""
        running = sum(left for line, left in self._left.items() if line not in self._idle and line.kernel not in self._missing)
        left = running * self._measured / self._estimated + self._compiling.left_s(self._missing)
        return max(0.0, left - (self._now() - self._last)) if self._estimates else 0.0
