"""The worker: a process of its own in which kernels run, so that whatever they do to it ends there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypedDict

from longca.bench import levels
from longca.bench.cell import Cell
from longca.bench.outcome import fields_of, of_exception
from longca.bench.session import Session
from longca.bench.suite import Limits
from longca.errors import LongcaError
from longca.kernels import registry
from longca.processes import host_memory
from longca.processes.child import Child
from longca.processes.child_main import Tell

Versions = dict[str, dict[str, str]]  # of kernels, by label
Reply = TypedDict("Reply", {"pass": str, "fields": dict[str, Any], "chose": str, "grad": bool, "fatal": bool}, total=False)


class Worker(Child):
    """The run's side of a worker. `ready` has the versions of the kernels of its plugin."""

    def __init__(self, limits: Limits, device: str, device_model: str, plugin: str | None = None) -> None:
        deadlines = {"start": limits.start_s, "build": limits.build_s, "reference": limits.build_s}
        deadlines |= {"check": limits.check_s, "time": limits.time_s}
        memory = host_memory.limit(limits.memory)
        super().__init__(
            "longca.bench.worker:Kernels",
            {"plugin": plugin, "device_model": device_model, "device": device},
            deadlines,
            memory=memory,
            data_limit=memory if device == "cpu" else 0,  # a CUDA context maps more than any limit allows
            ready_type=Versions,
            reply_type=Reply,
        )


class Kernels:
    """The worker's own side: a service that measures kernels, those of a plugin included."""

    def __init__(self, hello: dict[str, Any], tell: Tell) -> None:
        self._session = Session(tell, hello["device_model"])
        try:
            names = registry.load_plugin(hello["plugin"]) if hello["plugin"] else []  # first: settings that it changes are to stay
            labels = [label for name in names for label in registry.labels(name)]
            self.ready = {label: registry.versions(registry.get(label)) for label in labels}
            if hello["device"] == "cuda" and hello["device_model"]:  # seconds, which many workers can spend together
                self._session.start_device("cuda")
        except Exception as error:
            raise LongcaError(of_exception(error)[1]) from error

    def handle(self, job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from answers(job, self._session)
        self._session.after_job(job["last"])
        if self._session.fatal:
            yield {"fatal": True}


def answers(job: dict[str, Any], session: Session) -> Iterator[dict[str, Any]]:
    """One answer per pass, whatever happens."""
    cells = [Cell.from_json(fields) for fields in job["cells"]]
    session.configure(job)
    left = [cell.which for cell in cells]
    try:
        for which, fields in levels.part(cells[0].level, job.get("part", "measure"))(cells, session):
            left.remove(which)
            yield {"pass": which, "fields": plain(fields)}
    except Exception as error:
        found = fields_of(error)
        session.after_error(error)
        yield from ({"pass": which, "fields": plain(found)} for which in left)


def plain(value: Any) -> Any:
    """Numbers as JSON has them: six digits, which is more than any clock is worth, and null for what is not finite."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if abs(value) < float("inf") else None
    return value
