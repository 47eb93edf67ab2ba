"""A line per cell, and below it on a terminal or in a notebook the cell that runs; or nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from longca.bench.plan.cells import Planned
from longca.bench.plan.jobs import Job
from longca.results.naming import mask_title
from longca.results.record import NEVER_RAN, Record
from longca.results.roofline import bandwidth_of
from longca.results.tables import speed_unit
from longca.text import format_duration, format_size, say, write_over

# measuring that is taken to have gone as estimated: the first cells, which compile and import, do not change the estimate of all
TRUST_S = 2.0
TRUST = 0.05  # of the whole run


class TimeLeft:
    """The estimates of the cells that are left, corrected by what the cells before them really took. Cells are weighed, not counted: the
    last length of a suite may take longer than all others together."""

    def __init__(self, estimates: Mapping[str, float], now: Callable[[], float] = time.monotonic) -> None:
        """Seconds of each cell by its key."""
        self._estimates, self._now, self._last = dict(estimates), now, now()
        self._estimated = self._measured = max(TRUST_S, TRUST * sum(self._estimates.values()))

    def finished(self, record: Record) -> None:
        estimate, now = self._estimates.pop(record.key), self._now()
        if record.status not in NEVER_RAN:
            self._estimated += estimate
            self._measured += now - self._last
        self._last = now

    @property
    def seconds(self) -> float:
        """The seconds left at this moment."""
        left = sum(self._estimates.values()) * self._measured / self._estimated
        return max(0.0, left - (self._now() - self._last)) if self._estimates else 0.0


def result(record: Record) -> str:
    """Returns the time, speed (`~`: noisy) and bandwidth of a record, or its status and reason."""
    if not record.ok:
        return f"{record.status}: {record.reason}"
    unit = speed_unit([record.speed])
    speed = f"{unit.text(record.speed, bool(record.noisy))} {unit.name}"
    rate = bandwidth_of(record)
    moved = "" if rate is None else f"  {rate:.3g} GB/s"
    return f"{record.times.median:.4g} ms  {speed}{moved}{'  (host_bound)' if record.times.host_bound else ''}"


class Silent:
    """Shows nothing."""

    def __init__(self, todo: Sequence[Planned], left: TimeLeft) -> None:
        self._total, self._done, self._left = len(todo), 0, left
        self._seeds = Counter(mask for mask, _ in {(entry.cell.problem.mask, entry.cell.problem.seed) for entry in todo})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to end."""

    def begin(self, job: Job) -> None:
        """Shows nothing."""

    def finished(self, record: Record) -> None:
        self._done += 1
        self._left.finished(record)

    def say(self, text: str) -> None:
        """Shows nothing."""

    def _names(self, record: Record) -> str:
        """Kernel or method, mask (with its seed where the run has several), length and pass."""
        line = f"{record.split_name} {record.label}" if record.method else record.label
        mask = mask_title(record) if record.problem.is_pattern else record.problem.mask
        seed = f" seed={record.problem.seed}" if self._seeds[record.problem.mask] > 1 else ""
        return f"{line} {mask}{seed} {format_size(record.problem.seqlen)} {record.problem.pass_.value}"

    @property
    def _count(self) -> str:
        return f"[{self._done}/{self._total}, {format_duration(self._left.seconds)} left]"


class Progress(Silent):
    """A line per cell, with how many are done and the time left."""

    def __exit__(self, *_: object) -> None:
        write_over("")

    def begin(self, job: Job) -> None:
        cell = job.cell
        write_over(f"{self._count} {cell.title} {cell.problem.mask_title} {format_size(cell.problem.seqlen)}")

    def finished(self, record: Record) -> None:
        super().finished(record)
        self.say(f"{self._count} {self._names(record)}: {result(record)}")

    def say(self, text: str) -> None:
        say(text)


Show = Callable[[Sequence[Planned], TimeLeft], Silent]
