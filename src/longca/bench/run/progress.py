"""What one sees while it runs: a bar with the time left and the latest cells in a terminal, plain lines in a pipe or a log."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType
from typing import Any

from longca.bench.plan import Job
from longca.bench.summary import is_sparse, label, speed, with_params
from longca.text import format_size

SHOWN = 12  # latest cells in the live table


def outcome(record: dict[str, Any]) -> str:
    if record["status"] != "ok":
        return f"{record['status']}: {record['reason']}"
    flags = [name for name in ("host_bound", "noisy") if record[name]]
    return f"{record['ms']['median']:.4g} ms  {speed(record['tflops'])} TFLOP/s" + (f"  ({', '.join(flags)})" if flags else "")


def where(record: dict[str, Any]) -> tuple[str, str, str, str]:
    return label(record), with_params(record) if is_sparse(record) else record["mask"], format_size(record["seqlen"]), record["pass"]


class PlainProgress:
    """A line per cell."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._start = total, 0, time.monotonic()

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        sys.stderr.flush()

    def begin(self, job: Job) -> None:
        """Nothing to show until something is known."""

    def finished(self, record: dict[str, Any]) -> None:
        self._done += 1
        left = (time.monotonic() - self._start) / self._done * (self._total - self._done)
        kernel, mask, seqlen, which = where(record)
        self.say(f"[{self._done}/{self._total}, {left:.0f} s left] {kernel} {mask} {seqlen} {which}: {outcome(record)}")

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class LiveProgress:
    """A bar with the time left over a table of the latest cells."""

    def __init__(self, total: int) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=console)
        self._task = self._bar.add_task("", total=total)
        self._latest: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self._live = Live(console=console, refresh_per_second=4, get_renderable=lambda: Group(self._table(), self._bar))

    def _table(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        table = Table("kernel", "mask", "length", "pass", "result", box=SIMPLE_HEAD, pad_edge=False)
        for row in self._latest:
            table.add_row(*map(Text, row))  # as it is: a reason may hold brackets, which are no markup
        return table

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def begin(self, job: Job) -> None:
        cell = job.cell
        self._bar.update(
            self._task, description=f"{dict(cell.extra).get('method', cell.kernel)} {cell.mask_title} {format_size(cell.seqlen)}"
        )

    def finished(self, record: dict[str, Any]) -> None:
        self._latest.append((*where(record), outcome(record)))
        self._bar.advance(self._task)

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)


def progress(total: int) -> PlainProgress | LiveProgress:
    return LiveProgress(total) if sys.stderr.isatty() else PlainProgress(total)
