"""Workers in this process, for tests of what they find: a process of its own has to import torch first, which takes two seconds."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import msgspec
import pytest

from longca.bench.one_device import level, workers
from longca.bench.one_device.messages import Hello, Reply
from longca.bench.one_device.worker import Worker
from longca.kernels import registry
from longca.results.settings import Limits


def sent(message: Any) -> Any:
    """A message as the other side gets it."""
    return msgspec.json.decode(msgspec.json.encode(message))


@contextmanager
def workers_in_process() -> Iterator[None]:
    """Workers that are started meanwhile are in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])  # a plugin's folder is added to it
        for module in (level, workers):
            patch.setattr(module, "start_worker", InProcessWorker)
        yield


class InProcessWorker:
    """As much of a `Child` as a run needs. It has no deadlines and no bound of memory; what the kernel prints is not kept apart."""

    def __init__(self, limits: Limits, hello: Hello) -> None:
        self._plugins: dict[str, Any] = {}
        with self._own_plugins():
            self._worker = Worker(sent(hello), lambda message: None, own_process=False)
        self.ready = self._worker.ready

    @contextmanager
    def _own_plugins(self) -> Iterator[None]:
        """Plugins are loaded in workers alone: the run does not see them."""
        registry._plugins, others = self._plugins, registry._plugins
        try:
            yield
        finally:
            registry._plugins = others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_ready(self) -> Any:
        return self.ready

    def run(self, job: Any) -> Iterator[Any]:
        replies = self._worker.handle(sent(job))
        while True:
            with self._own_plugins():
                reply = next(replies, None)
            if reply is None:
                return
            yield msgspec.convert(sent(reply), Reply)

    def take_seconds(self) -> dict[str, float]:
        return {}

    def take_output(self) -> str:
        return ""

    def end(self) -> None: ...

    def close(self) -> None: ...
