"""Workers in this process, for tests of what they find: a process of its own has to import torch first, which takes two seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from longca.bench.one_device import level, workers
from longca.bench.one_device.in_process import InProcess
from longca.bench.one_device.messages import Answer, Hello, Reply, WorkerJob
from longca.bench.one_device.worker import Worker
from longca.kernels import discovery
from longca.results.problem import Pass
from longca.results.record import Outcome
from longca.results.settings import Limits


@contextmanager
def workers_in_process() -> Iterator[None]:
    """Workers that are started meanwhile are in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # a plugin's folder is added to it
        for module in (level, workers):
            patch.setattr(module, "start_worker", InProcessWorker)
        yield


class InProcessWorker(InProcess):
    """Loads plugins that the run does not see, as a process of its own does."""

    def __init__(self, limits: Limits, hello: Hello) -> None:
        self._plugins: dict[str, Any] = {}
        with self._own_plugins():
            super().__init__(limits, hello)

    @contextmanager
    def _own_plugins(self) -> Iterator[None]:
        discovery._plugins, others = self._plugins, discovery._plugins
        try:
            yield
        finally:
            discovery._plugins = others

    def run(self, job: Any) -> Iterator[Any]:
        with self._own_plugins():
            replies = list(super().run(job))
        yield from replies


def replies_to(job: WorkerJob, worker: Worker | None = None) -> list[Reply]:
    """What a worker answers to a job, as the run gets it."""
    worker = worker or Worker({"device": "cpu"}, lambda message: None)
    return [msgspec.convert(reply, Reply) for reply in worker.handle(msgspec.json.decode(msgspec.json.encode(job)))]  # type: ignore[arg-type]


def outcomes_of(job: WorkerJob) -> dict[Pass, Outcome]:
    """The outcome of each pass."""
    return {reply.pass_: reply.outcome for reply in replies_to(job) if isinstance(reply, Answer)}
