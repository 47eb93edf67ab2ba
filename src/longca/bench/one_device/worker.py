"""The worker: a process of its own in which kernels run, so that whatever they do to it ends there.

`python -m longca.bench.worker COMMANDS REPLIES PARENT`: two pipes by number, and the parent's process id. Jobs come in as JSON lines,
answers go out as JSON lines; what a kernel prints goes elsewhere. It ends when its parent does.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from longca.bench import levels
from longca.bench.cell import Cell
from longca.bench.outcome import fields_of, of_exception
from longca.bench.session import Session
from longca.kernels import registry

PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent is gone, even in the middle of native code."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        os._exit(1)


def limit_memory(size: int) -> None:
    """A limit that allocations run into, so that a greedy kernel gets an error and not the whole machine."""
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def main(commands: int, replies: int, parent: int) -> None:
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file of a GPU process takes minutes and gigabytes
    os.set_inheritable(commands, False)
    os.set_inheritable(replies, False)

    def tell(message: dict[str, Any]) -> None:
        os.write(replies, json.dumps(message).encode() + b"\n")

    with os.fdopen(commands, "rb") as lines:
        hello = json.loads(lines.readline())
        if hello["memory"]:
            limit_memory(hello["memory"])
        serve(lines, hello, tell)


def serve(lines: Iterator[bytes], hello: dict[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
    """Loads the plugin, then answers jobs until the pipe closes."""
    tell({"phase": "start"})
    session = Session(tell, hello["device_model"])
    try:
        names = registry.load_plugin(hello["plugin"]) if hello["plugin"] else []  # first: settings that it changes are to stay
        labels = [label for name in names for label in registry.labels(name)]
        versions = {label: registry.versions(registry.get(label)) for label in labels}
        if hello["device"] == "cuda" and hello["device_model"]:  # seconds, which many workers can spend together
            session.start_device("cuda")
    except Exception as error:
        tell({"failed": of_exception(error)[1]})
        return
    tell({"ready": versions})
    for line in lines:
        job = json.loads(line)
        for message in answers(job, session):
            tell(message)
        session.after_job(job["last"])
        tell({"done": True, "fatal": session.fatal})


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


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]))
