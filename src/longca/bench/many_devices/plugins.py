"""Files of users with methods or kernels. A file is imported by a child process first: importing it may do anything, even end the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from longca.errors import BadInput, LongcaError
from longca.kernels import registry as kernels
from longca.parallel import registry as methods
from longca.processes.child import ask
from longca.processes.child_main import Tell
from longca.processes.lost import ChildLost


def load_plugin(path: str) -> list[str]:
    """The methods of a user's file, or else its kernels."""
    return methods.load_plugin(path) or kernels.load_plugin(path)


def load_carefully(path: str, seconds: float) -> list[str]:
    """The same after a child process has done it, so that a file which ends or hangs its process is an error in one sentence."""
    try:
        ask("longca.bench.many_devices.plugins:Trial", path, {"start": seconds, "import": seconds})
    except ChildLost as lost:
        if lost.status == "timeout":
            raise BadInput(f"the plugin {path} is not imported within {seconds:g} s; mend it, or give it a longer --deadline.") from None
        raise BadInput(f"the plugin {path} breaks the process that imports it, so mend it first: {lost.reason}.") from None
    return load_plugin(path)  # what it is refused for is told here


class Trial:
    """A service that only imports a file."""

    ready = None

    def __init__(self, path: str, tell: Tell) -> None:
        tell({"phase": "import"})
        with suppress(LongcaError):
            load_plugin(path)

    def handle(self, job: Any) -> Iterator[Any]:
        yield from ()
