"""Progress of a run: a bar with the time left and the latest cells in a terminal, plain lines in a pipe or a log, one line that is written
over in a notebook, or nothing."""

from __future__ import annotations

import sys
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from longca.bench.plan.jobs import Job
from longca.bench.run.time_left import TimeLeft
from longca.results.naming import mask_title
from longca.results.record import Record
from longca.results.tables import speed_unit
from longca.text import format_duration, format_size, in_notebook, short, write_over

if TYPE_CHECKING:
    from longca.bench.run.campaign import Show

SHOWN = 12  # latest cells in the live table


def result(record: Record) -> str:
    """Returns the time and speed of a record (`~`: noisy), or its status and reason."""
    if not record.ok:
        return f"{record.status}: {record.reason}"
    unit = speed_unit([record.speed])
    speed = f"{unit.text(record.speed, bool(record.noisy))} {unit.name}"
    return f"{record.times.median:.4g} ms  {speed}{'  (host_bound)' if record.times.host_bound else ''}"


def cell_names(record: Record, left: TimeLeft) -> tuple[str, str, str, str]:
    """Kernel or method, mask (with its seed where the run has several), length and pass."""
    line = f"{record.split_name} {record.label}" if record.method else record.label
    mask = mask_title(record) if record.problem.is_pattern else record.problem.mask
    seed = f" seed={record.problem.seed}" if left.has_several_seeds(record) else ""
    return line, f"{mask}{seed}", format_size(record.problem.seqlen), record.problem.pass_.value


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
        return " ".join(cell_names(record, self._left))

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


class LiveProgress:
    """A bar with the time left over a table of the latest cells."""

    def __init__(self, total: int, left: TimeLeft) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]} left"),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=console)
        self._left = left
        self._task = self._bar.add_task("", total=total, left=format_duration(left.seconds))
        self._latest: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self._live = Live(console=console, refresh_per_second=4, get_renderable=lambda: Group(self._table(), self._current_bar()))

    def _current_bar(self) -> Any:
        self._bar.update(self._task, left=format_duration(self._left.seconds))
        return self._bar

    def _table(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table("kernel", "mask", "length", "pass", "result", box=SIMPLE_HEAD, pad_edge=False)
        for row in self._latest:
            table.add_row(*map(Text, row))  # brackets in a reason are no markup
        return table

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def begin(self, job: Job) -> None:
        cell = job.cell
        self._bar.update(self._task, description=f"{cell.title} {cell.problem.mask_title} {format_size(cell.problem.seqlen)}")

    def finished(self, record: Record) -> None:
        self._left.finished(record)
        self._latest.append((*cell_names(record, self._left), result(record)))
        self._bar.advance(self._task)

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)


def progress(total: int, left: TimeLeft) -> PlainProgress | LiveProgress:
    return LiveProgress(total, left) if sys.stderr.isatty() else PlainProgress(total, left)


def watcher(shown: bool) -> Show:
    """What shows the progress of a run to a Python user."""
    return (NotebookProgress if in_notebook() else progress) if shown else Silent
