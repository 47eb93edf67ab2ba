"""Progress for Python: as the command line shows it, in a notebook one line that is written over, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType

from longca.bench.one_device.verify import CaseCount, Finding
from longca.bench.plan.jobs import Job
from longca.bench.run.campaign import Show
from longca.bench.run.progress import cell_names, progress, result
from longca.bench.run.time_left import TimeLeft
from longca.results.record import Record
from longca.text import format_duration, short

LINE = 110  # letters of the line that is written over


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel: its output is no terminal, and yet somebody looks at it."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def watcher(shown: bool) -> Show:
    """What shows the progress of a run."""
    return (NotebookProgress if in_notebook() else progress) if shown else Silent


class Silent:
    """Shows nothing."""

    def __init__(self, total: int, left: TimeLeft) -> None:
        self._left = left

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Nothing to end."""

    def begin(self, job: Job) -> None:
        """Shows nothing."""

    def finished(self, record: Record) -> None:
        self._left.finished(record)

    def say(self, text: str) -> None:
        """Shows nothing."""


class NotebookProgress:
    """One line with the latest cell; cells that failed keep a line of their own."""

    def __init__(self, total: int, left: TimeLeft) -> None:
        self._total, self._done, self._left = total, 0, left

    def __enter__(self) -> NotebookProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        write_over("")

    def begin(self, job: Job) -> None:
        """Shows nothing: the line comes with the result."""

    def finished(self, record: Record) -> None:
        self._done += 1
        self._left.finished(record)
        line = f"{' '.join(cell_names(record, self._left))}: {result(record)}"
        if not record.ok:
            self.say(short(line))
        write_over(f"[{self._done}/{self._total}, {format_duration(self._left.seconds)} left] {line}")

    def say(self, text: str) -> None:
        write_over("")
        print(text, flush=True)


class ChecksShown:
    """Passes findings on, and shows how far a verification is: in a terminal or a notebook one line that is written over."""

    def __init__(self, findings: Iterable[Finding], count: CaseCount, shown: bool) -> None:
        self._findings, self._count = findings, count
        self._shown = shown and (in_notebook() or sys.stdout.isatty())

    def __iter__(self) -> Iterator[Finding]:
        for finding in self._findings:
            self._count.add(finding)
            if self._shown:
                done = f"{self._count.done}/{self._count.total}"
                write_over(f"[{done}] {finding.kernel} on {finding.mask}, {finding.seqlen} tokens: {finding.status}")
            yield finding
        if self._shown:
            write_over("")


def say_line(text: str) -> None:
    """Prints a line that stays, below which the line that is written over goes on."""
    if in_notebook() or sys.stdout.isatty():
        write_over("")
    print(text, file=sys.stderr, flush=True)


def write_over(text: str) -> None:
    """Writes a line in the place of the last one."""
    print(f"\r{short(text, LINE):<{LINE}}", end="\r" if not text else "", flush=True)
