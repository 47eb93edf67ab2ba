"""The one policy for attempts: when a forward is tried without its backward, and when a kernel or method is not tried again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from longca.bench.plan.cell import Cell
from longca.bench.plan.jobs import Job
from longca.processes.lost import PHASES, SILENT_S
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from longca.text import format_duration, format_size, short

NOT_ALONE = (Status.OK, Status.INVALID, Status.UNAVAILABLE)  # the forward was measured, or no way of running it is there
STRIKES = 3  # broken processes in a row, after which nothing more is tried
LOST = "not tried without a backward, with which the ranks of this job broke"


def waiting(cell: Cell, phase: str, deadline_s: float, trial: str = "") -> str:
    """The sentence for a job that is silent for long: what runs, and when it is stopped. A forward that is tried again alone says so."""
    name = f"{cell.split.method} {cell.split.shape} {cell.kernel}" if cell.split else cell.kernel
    problem = f"the trial {trial}" if trial else f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens"
    alone = "" if cell.grad or trial else ", without a backward"
    phase = PHASES.get(phase, phase)
    return f"waiting for {name} on {problem}{alone}: {phase} takes more than {SILENT_S:g} s; its deadline is {format_duration(deadline_s)}."


def outcomes(job: Job, executor: Executor) -> Iterator[tuple[Pass, Outcome]]:
    """An outcome for every pass of the job. Where a forward failed beside its backward, it is tried once more alone."""
    lost_before, forward = executor.lost, None
    for pass_, outcome in executor.attempt(job):
        alone = pass_ is Pass.FWD and job.cell.grad and outcome.status not in NOT_ALONE
        if alone:
            forward = outcome
        else:
            yield pass_, outcome
    if forward is not None and executor.lost and not lost_before:
        yield Pass.FWD, replace(forward, status=Status.ERROR, reason=short(f"{LOST}: {forward.reason}"))
    elif forward is not None:
        yield from executor.attempt(job.forward_alone)
    if job.last:
        executor.release(job)


def skipped(job: Job, executor: Executor, reason: str) -> Iterator[tuple[Pass, Outcome]]:
    """The same outcome for every pass of a job that is not run."""
    yield from ((pass_, Outcome(status=Status.SKIPPED, reason=short(reason), grad=job.cell.grad)) for pass_ in job.passes)
    if job.last:
        executor.release(job)


class Suspect(NamedTuple):
    """A kernel (as asked for, or the variant chosen) or a method, and whether a backward was asked for: its forward may be fine."""

    name: str
    grad: bool


class Strikes:
    """Counts broken processes in a row. Variants are counted apart: one that crashes says nothing about its siblings."""

    def __init__(self) -> None:
        self._counts: dict[Suspect, int] = {}
        self._last: dict[Suspect, Outcome] = {}

    def broke(self, suspect: Suspect, status: Status, reason: str) -> None:
        self._counts[suspect] = self._counts.get(suspect, 0) + 1
        words = f"not tried, its process broke {STRIKES} times in a row; the last time"
        self._last[suspect] = Outcome(status=status, reason=short(f"{words}: {reason}"), grad=suspect.grad)

    def answered(self, suspect: Suspect) -> None:
        self._counts.pop(suspect, None)

    def given_up(self) -> dict[Suspect, Outcome]:
        """The suspects that are not tried again, with the outcome of their cells."""
        return {suspect: self._last[suspect] for suspect, count in self._counts.items() if count >= STRIKES}


def say_nothing(text: str) -> None:
    """Shows nothing."""


class Executor(ABC):
    """Runs jobs of one level: in workers, or on a group of ranks."""

    def __init__(self) -> None:
        self.spent_s = defaultdict[str, float](float)  # by phase: start, build, reference, check, time
        self.say: Callable[[str], None] = say_nothing  # gets a sentence for a job that is silent for long
        self.strikes = Strikes()

    @property
    def lost(self) -> bool:
        """Whether its processes broke and no new ones can be started."""
        return False

    def start(self, jobs: Iterable[Job]) -> None:
        """Begins to start what these jobs need, without waiting for it."""
        return

    @abstractmethod
    def attempt(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        """An outcome for every pass of the job, whatever happens to the processes that run it."""

    def release(self, job: Job) -> None:
        """Drops what was kept for the problem of this job, where that does not end with the next one."""
        return

    def close(self) -> None:
        """Ends all processes."""
        return
