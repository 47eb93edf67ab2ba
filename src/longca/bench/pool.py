"""The workers of a run: one per kernel, started when first needed, replaced when broken, given up when hopeless."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from longca.bench.catalogue import Catalogue
from longca.bench.plan import Job, worker_of
from longca.bench.suite import Suite
from longca.bench.supervisor import Gone, Worker
from longca.text import parse_size

Fields = dict[str, Any]
STRIKES = 3  # broken workers in a row after which a kernel's other cells are not tried


class Executor(Protocol):
    """Runs the jobs of one level. Another level brings another executor: a pool of ranks instead of one worker."""

    busy_s: float  # spent building, checking and measuring

    def run(self, job: Job) -> Iterator[tuple[str, Fields]]:
        """(pass, what was found) for every pass of the job, whatever happens."""

    def close(self) -> None: ...


class Pool:
    """Only one worker is busy at a time, so that they do not disturb each other's times."""

    def __init__(self, suite: Suite, found: Catalogue, device: str, device_model: str, cache: Path, full: bool) -> None:
        self._suite, self._found, self._device, self._model, self._cache = suite, found, device, device_model, cache
        self._quadratic = None if full else parse_size(suite.limits.quadratic)
        self._workers: dict[str, Worker] = {}
        self._strikes: dict[str, int] = {}
        self._last_words: dict[str, Gone] = {}
        self.busy_s = 0.0

    def run(self, job: Job) -> Iterator[tuple[str, Fields]]:
        left = [entry.cell.which for entry in job.planned]
        name, entry = worker_of(job.cell), self._found.entries[job.cell.kernel]
        try:
            if entry.failure is not None:
                raise Gone(*entry.failure)
            if self._strikes.get(name, 0) >= STRIKES:
                last = self._last_words[name]
                raise Gone(last.status, f"not tried, its worker broke {STRIKES} times in a row; the last time: {last.reason}")
            for which, fields in self._ask(name, entry.plugin, job):
                left.remove(which)
                yield which, fields
        except Gone as gone:
            yield from ((which, {"status": gone.status, "reason": gone.reason}) for which in left)

    def _ask(self, name: str, plugin: str | None, job: Job) -> Iterator[tuple[str, Fields]]:
        try:
            worker = self._worker(name, plugin)
            for message in worker.run(self._message(job)):
                if "pass" in message:
                    yield message["pass"], message["fields"]
                else:
                    self.busy_s += message["busy_s"]
                    self._strikes[name] = 0
                    if message["fatal"]:
                        self._drop(name)
        except Gone as gone:
            self._drop(name)
            self._strikes[name] = self._strikes.get(name, 0) + 1
            self._last_words[name] = gone
            raise

    def _worker(self, name: str, plugin: str | None) -> Worker:
        if name not in self._workers:
            self._workers[name] = Worker(self._suite.limits, self._device, self._model, plugin)
            self._workers[name].wait_ready()
        return self._workers[name]

    def _message(self, job: Job) -> Fields:
        cells = [entry.cell.to_json() for entry in job.planned]
        about = {"clock": asdict(self._suite.clock), "cache": str(self._cache), "quadratic": self._quadratic, "last": job.last}
        return {"cells": cells, **about}

    def _drop(self, name: str) -> None:
        worker = self._workers.pop(name, None)
        if worker is not None:
            worker.kill()

    def close(self) -> None:
        for name in list(self._workers):
            self._drop(name)
