"""The workers of a run: one per kernel, started when first needed, replaced when broken, given up when hopeless."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from longca.bench.catalogue import Catalogue, Entry
from longca.bench.plan import Job
from longca.bench.strikes import Strikes, Suspect
from longca.bench.suite import Suite
from longca.bench.worker import Worker
from longca.processes.lost import ChildLost
from longca.text import parse_size

Fields = dict[str, Any]


class Executor(Protocol):
    """Runs the jobs of one level. Another level brings another executor: a pool of ranks instead of one worker."""

    spent_s: defaultdict[str, float]  # by phase: start, build, reference, check, time

    def start(self, jobs: Iterable[Job]) -> None:
        """Begin to start what these jobs need, without waiting for it."""

    def run(self, job: Job) -> Iterator[tuple[str, Fields]]:
        """(pass, what was found) for every pass of the job, whatever happens."""

    def close(self) -> None: ...


class Pool:
    """Only one worker is busy at a time, so that they do not disturb each other's times."""

    def __init__(self, suite: Suite, found: Catalogue, device: str, device_model: str, cache: Path, full: bool) -> None:
        self._suite, self._found, self._device, self._model, self._cache = suite, found, device, device_model, cache
        self._quadratic = None if full else parse_size(suite.limits.quadratic)
        self._workers: dict[str, Worker] = {}
        self._strikes = Strikes()
        self.spent_s = defaultdict[str, float](float)

    def start(self, jobs: Iterable[Job]) -> None:
        """Start the workers of these jobs together: on a GPU each takes many seconds, most of them waiting."""
        for job in jobs:
            entry = self._found.entries[job.cell.kernel]
            if entry.failure is None and self._name(job, entry) not in self._workers:
                with suppress(ChildLost):  # the job itself tries again, and tells
                    self._spawn(self._name(job, entry), entry)

    def run(self, job: Job) -> Iterator[tuple[str, Fields]]:
        """Where a backward may have broken the worker before the forward was measured, forward is tried alone in a new one."""
        left = [entry.cell.which for entry in job.planned]
        alone = job.cell.grad and "fwd" in left and self._found.entries[job.cell.kernel].failure is None
        try:
            for which, fields in self._ask(job):
                left.remove(which)
                yield which, fields
        except ChildLost as gone:
            alone = alone and "fwd" in left
            yield from ((which, _fields(gone)) for which in left if not (alone and which == "fwd"))
        if alone and "fwd" in left:
            try:
                yield from self._ask(forward_alone(job))
            except ChildLost as gone:
                yield "fwd", _fields(gone)

    def _ask(self, job: Job) -> Iterator[tuple[str, Fields]]:
        entry = self._found.entries[job.cell.kernel]
        if entry.failure is not None:
            raise ChildLost(*entry.failure)
        name, suspect = self._name(job, entry), Suspect(job.cell.kernel, job.cell.grad)
        if (given_up := self._strikes.given_up().get(suspect)) is not None:
            raise given_up
        if name not in self._workers:
            self._spawn(name, entry)
        worker = self._workers[name]
        try:
            worker.wait_ready()
            left = [entry.cell.which for entry in job.planned]
            fields, tried, fatal = Fields(), False, False  # what refuses a mask has not shown that it can run one
            for message in worker.run(self._message(job)):
                if message.keys() == {"pass", "fields"} and message["pass"] in left:
                    left.remove(message["pass"])
                    fields = message["fields"]
                    yield message["pass"], fields
                elif message.keys() == {"chose", "grad"}:
                    suspect, tried = self._now(suspect, Suspect(message["chose"], message["grad"])), True
                elif message.keys() == {"fatal"}:
                    fatal = True
                else:
                    raise ChildLost("error", "its process sent a reply that nobody asked for")
            if fatal:
                self._broke(name, suspect, ChildLost(fields.get("status", "error"), fields.get("reason", "it lost its device")))
            elif tried:
                self._strikes.answered(suspect)
        except ChildLost as gone:
            self._broke(name, suspect, gone)
            raise
        finally:
            for phase, seconds in worker.take_seconds().items():
                self.spent_s[phase] += seconds

    def _now(self, before: Suspect, chosen: Suspect) -> Suspect:
        """Whom to blame from now on; what was blamed before has come to an end."""
        if chosen != before:
            self._strikes.answered(before)
        return chosen

    def _broke(self, name: str, suspect: Suspect, how: ChildLost) -> None:
        """It died, or lost its device, which is the same to all that come after it."""
        self._drop(name)
        self._strikes.broke(suspect, how)

    def _name(self, job: Job, entry: Entry) -> str:
        """A plugin never shares its worker with other files' kernels: importing it may harm them."""
        return job.worker if entry.plugin is None else f"{job.worker}/{entry.plugin}"

    def _spawn(self, name: str, entry: Entry) -> None:
        self._workers[name] = Worker(self._suite.limits, self._device, self._model, entry.plugin)

    def _message(self, job: Job) -> Fields:
        cells = [entry.cell.to_json() for entry in job.planned]
        # a worker that does everything itself keeps references in memory: nobody would read them from the disk
        alone = self._suite.limits.workers == "one" and not any(entry.plugin for entry in self._found.entries.values())
        cache = None if alone else str(self._cache)
        about = {"clock": asdict(self._suite.clock), "cache": cache, "quadratic": self._quadratic, "last": job.last}
        given_up = [[*suspect, gone.status, gone.reason] for suspect, gone in self._strikes.given_up().items()]
        return {"cells": cells, "given_up": given_up, **about}

    def _drop(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.close()

    def close(self) -> None:
        for name in list(self._workers):
            self._drop(name)


def forward_alone(job: Job) -> Job:
    """The job without its backward passes, and without what a forward keeps for them."""
    planned = tuple(replace(entry, cell=replace(entry.cell, grad=False)) for entry in job.planned if entry.cell.which == "fwd")
    return replace(job, planned=planned)


def _fields(gone: ChildLost) -> Fields:
    return {"status": gone.status, "reason": gone.reason}
