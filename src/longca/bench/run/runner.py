"""The loop: job after job to the executor, record after record to the journal, until the end or until somebody stops it."""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from longca.bench.plan.jobs import Job
from longca.bench.run.outcomes import make_record
from longca.bench.run.progress import Silent
from longca.bench.run.retry import Executor, outcomes, skipped
from longca.bench.run.slow import SlowKernels
from longca.results.journal import CannotWrite, Journal

CACHE = ".cache"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Ended(NamedTuple):
    """How many cells have no record yet, and whether somebody interrupted."""

    left: int
    interrupted: bool


class Stop:
    """Ctrl-C or SIGTERM stops a run at once, whatever its kernels do; a time limit stops it after the current job. In both cases the
    journal has every record whole. Further signals are ignored, so that processes are ended and results are printed."""

    def __init__(self, limit_s: float | None = None) -> None:
        self.pressed = self._writing = False
        self._end = float("inf") if limit_s is None else time.monotonic() + limit_s

    @property
    def asked(self) -> bool:
        return self.pressed or time.monotonic() >= self._end

    def __call__(self, number: int, _: FrameType | None) -> None:
        if self.pressed:
            return
        self.pressed = True
        if not self._writing:
            raise KeyboardInterrupt

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Delays the stop, so that a record is written and counted, or neither."""
        self._writing = True
        try:
            yield
        finally:
            self._writing = False
        if self.pressed:
            raise KeyboardInterrupt

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes both signals. After an interrupt they stay ignored, so that the caller can print what there is (`signals_restored`)."""
        if threading.current_thread() is not threading.main_thread():
            yield  # Python delivers signals to the main thread alone
            return
        before = {number: signal.signal(number, self) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, signal.SIG_IGN if self.pressed else handler)


@contextmanager
def signals_restored() -> Iterator[None]:
    """Gives signals back to their handlers at the end, also after a run that was interrupted."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def make_cache(folder: Path) -> None:
    """Makes an empty folder for what workers share: the references of a problem. What another problem or a killed run left is removed."""
    cache = folder / CACHE
    shutil.rmtree(cache, ignore_errors=True)
    try:
        cache.mkdir(exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"cannot write {cache}: {error.strerror}; make room, or give another --out.") from error


def execute(
    jobs: Sequence[Job],
    executor: Executor,
    journal: Journal,
    environment: str,
    watcher: Silent,
    limit_s: float | None = None,
    slow: SlowKernels | None = None,
) -> Ended:
    """Runs jobs until the end, or until it is stopped. The journal holds each record before the next cell begins.

    Kernels that were `slow` at shorter lengths are skipped; without it none is.
    """
    stop = Stop(limit_s)
    cache, problem, left = journal.folder / CACHE, None, sum(len(job.planned) for job in jobs)
    try:
        with stop.listening():
            for job in jobs:
                if stop.asked:
                    return Ended(left, stop.pressed)
                if job.cell.problem.every_pass != problem:
                    problem = job.cell.problem.every_pass
                    with suppress(CannotWrite):  # without it every worker computes its references
                        make_cache(journal.folder)
                journal.add_mask(job.planned[0].mask)
                watcher.begin(job)
                planned = {entry.cell.problem.pass_: entry for entry in job.planned}
                reason = slow.reason(job) if slow else ""
                for pass_, outcome in skipped(job, executor, reason) if reason else outcomes(job, executor):
                    record = make_record(planned[pass_], outcome, environment)
                    if slow:
                        slow.add(planned[pass_].cell, record)
                    with stop.writing():
                        journal.add(record)
                        left -= 1
                    watcher.finished(record)
        return Ended(0, False)
    except KeyboardInterrupt:
        return Ended(left, True)
    finally:
        executor.close()
        shutil.rmtree(cache, ignore_errors=True)
