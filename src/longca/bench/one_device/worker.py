"""The service inside a worker process: it loads the plugin, then checks and times kernels, one job after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from longca import masks
from longca.bench.one_device import job as jobs
from longca.bench.one_device.messages import Answer, Chosen, DeviceLost, Hello, Profiled, Provisional, WorkerJob
from longca.bench.one_device.session import Session
from longca.bench.plan.catalogue import entry_of
from longca.bench.run.outcomes import drop_frames, failure, to_message
from longca.kernels import registry


class Worker:
    """Loaded by `longca.processes`; `ready` are the kernels that the plugin offers."""

    def __init__(self, hello: dict[str, Any], tell: Callable[[dict[str, Any]], None], own_process: bool = True) -> None:
        greeting = msgspec.convert(hello, Hello)
        names = registry.load_plugin(greeting.plugin) if greeting.plugin else []  # first: torch settings that it changes are to stay
        for path in greeting.masks:
            if path != greeting.plugin:
                masks.load_plugin(path)
        labels = [label for name in names for label in registry.labels(name)]
        self.ready = msgspec.to_builtins({label: entry_of(label, greeting.plugin) for label in labels})
        self._session = Session(
            lambda phase: tell({"phase": phase}),
            greeting.device_model,
            own_process,
            lambda outcome: tell({"reply": to_message(Provisional(outcome))}),
        )
        if greeting.device == "cuda" and greeting.device_model:
            self._session.start_device("cuda")

    def handle(self, message: Any) -> Iterator[Any]:
        job, session = msgspec.convert(message, WorkerJob), self._session
        if not job.cells:
            session.end_problem()
            return
        for reply in self._answers(job):
            yield to_message(reply)
        session.end_job()
        if job.compile_only and "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()  # the worker that measures may need the memory
        if session.device_lost:
            yield to_message(DeviceLost())

    def _answers(self, job: WorkerJob) -> Iterator[Chosen | Answer | Profiled]:
        """One answer per pass, whatever happens."""
        self._session.configure(job)
        left = [cell.problem.pass_ for cell in job.cells]
        try:
            for reply in jobs.run(job, self._session):
                if isinstance(reply, Answer):
                    left.remove(reply.pass_)
                yield reply
        except Exception as error:
            if job.compile_only:  # the worker that measures this kernel will say so
                drop_frames(error)
                return
            outcome = failure(error, grad=job.cells[0].grad, build_ms=self._session.build_ms)
            self._session.after_error(error)
            yield from (Answer(pass_, outcome) for pass_ in left)
