"""A line per cell, in a terminal over a bar with the time left; in a notebook one line that is written over; or nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from longca.bench.plan.jobs import Job
from longca.bench.run.time_left import TimeLeft
from longca.results.naming import mask_title
from longca.results.record import Record
from longca.results.tables import speed_unit
from longca.text import format_duration, format_size, in_notebook, short, write_over

if TYPE_CHECKING:
    from longca.bench.run.campaign import Show


def result(record: Record) -> str:
    """Returns the time and speed of a record (`~`: noisy), or its status and reason."""
    if not record.ok:
        return f"{record.status}: {record.reason}"
    unit = speed_unit([record.speed])
    speed = f"{unit.text(record.speed, bool(record.noisy))} {unit.name}"
    return f"{record.times.median:.4g} ms  {speed}{'  (host_bound)' if record.times.host_bound else ''}"


class Silent:
    """Shows nothing."""

    def __init__(self, total: int, left: TimeLeft) -> None:
        self._total, self._done, self._left = total, 0, left

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to end."""

    def begin(self, job: Job) -> None:
        """Shows nothing: a line comes with the result."""

    def finished(self, record: Record) -> None:
        self._done += 1
        self._left.finished(record)

    def say(self, text: str) -> None:
        """Shows nothing."""

    def _names(self, record: Record) -> str:
        """Kernel or method, mask (with its seed where the run has several), length and pass."""
        line = f"{record.split_name} {record.label}" if record.method else record.label
        mask = mask_title(record) if record.problem.is_pattern else record.problem.mask
        seed = f" seed={record.problem.seed}" if self._left.has_several_seeds(record) else ""
        return f"{line} {mask}{seed} {format_size(record.problem.seqlen)} {record.problem.pass_.value}"

    @property
    def _count(self) -> str:
        return f"[{self._done}/{self._total}, {format_duration(self._left.seconds)} left]"


class PlainProgress(Silent):
    """A line per cell."""

    def finished(self, record: Record) -> None:
        super().finished(record)
        self.say(f"{self._count} {self._names(record)}: {result(record)}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class NotebookProgress(Silent):
    """One line with the latest cell; cells that failed keep a line of their own."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        write_over("")

    def finished(self, record: Record) -> None:
        super().finished(record)
        line = f"{self._names(record)}: {result(record)}"
        if not record.ok:
            self.say(short(line))
        write_over(f"{self._count} {line}")

    def say(self, text: str) -> None:
        write_over("")
        print(text, flush=True)


class LiveProgress(Silent):
    """A line per cell, and below them a bar with the time left and the cell that runs."""

    def __init__(self, total: int, left: TimeLeft) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn
        from rich.text import Text

        class SecondsLeft(ProgressColumn):
            def render(self, task: object) -> Text:
                return Text(f"{format_duration(left.seconds)} left")

        super().__init__(total, left)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), SecondsLeft(), TextColumn("{task.description}", markup=False))
        self._bar = Progress(*columns, console=Console(stderr=True), refresh_per_second=4)
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> LiveProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def begin(self, job: Job) -> None:
        cell = job.cell
        self._bar.update(self._task, description=f"{cell.title} {cell.problem.mask_title} {format_size(cell.problem.seqlen)}")

    def finished(self, record: Record) -> None:
        super().finished(record)
        self.say(f"{self._names(record)}: {result(record)}")
        self._bar.advance(self._task)

    def say(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


def progress(total: int, left: TimeLeft) -> PlainProgress | LiveProgress:
    return LiveProgress(total, left) if sys.stderr.isatty() else PlainProgress(total, left)


def watcher(shown: bool) -> Show:
    """What shows the progress of a run to a Python user."""
    return (NotebookProgress if in_notebook() else progress) if shown else Silent
