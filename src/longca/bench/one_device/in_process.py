"""A worker in this process, for kernels that no other process can load: objects of a notebook or of a test.

It answers as a worker does, from the same code, but there is no deadline, no memory limit, and a kernel that crashes takes the process
along. What a kernel prints is printed.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from longca.bench.one_device.messages import Hello, Offers, Reply
from longca.bench.one_device.worker import Worker
from longca.processes.lost import ChildLost
from longca.results.settings import Limits


@contextmanager
def _usual_modes() -> Iterator[None]:
    """Records gradients and leaves dtypes alone, whatever modes the caller is in."""
    import torch

    with torch.inference_mode(False), torch.enable_grad(), ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


class InProcess:
    silent: Callable[[str, float], None] | None = None  # never called: this process is busy with the job

    def __init__(self, limits: Limits, hello: Hello) -> None:
        """The limits have no effect on this process."""
        self._seconds, self._phase, self._since = defaultdict[str, float](float), "start", time.monotonic()
        self._replies: list[Reply] = []  # to the job that runs
        self._worker = Worker(msgspec.to_builtins(hello), self._hear, own_process=False)

    def _hear(self, message: dict[str, Any]) -> None:
        if "phase" in message:
            self._enter(message["phase"])
        else:
            self._replies.append(msgspec.convert(message["reply"], Reply))

    def _enter(self, phase: str) -> None:
        now = time.monotonic()
        self._seconds[self._phase] += now - self._since
        self._phase, self._since = phase, now

    def wait_ready(self) -> Offers:
        return msgspec.convert(self._worker.ready, Offers)

    def run(self, job: Any) -> Iterator[Any]:
        """The replies to a job."""
        self._phase, self._since = "build", time.monotonic()
        self._replies, lost = [], None
        with _usual_modes():
            try:
                for message in self._worker.handle(job):
                    self._replies.append(msgspec.convert(message, Reply))
            except SystemExit as error:
                lost = ChildLost("error", f"it ends the process: sys.exit({error.code!r})")
        yield from self._replies
        if lost is not None:
            raise lost

    def take_seconds(self) -> dict[str, float]:
        self._enter(self._phase)
        seconds = dict(self._seconds)
        self._seconds.clear()
        return seconds

    def take_output(self) -> str:
        return ""

    def end(self) -> None:
        """Does nothing: there is no process to end."""

    def close(self) -> None:
        """Drops what the worker keeps."""
        del self._worker
