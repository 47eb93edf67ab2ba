"""Users' files are imported by a child process first: importing one may do anything, even end the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from longca.errors import BadInput, LongcaError
from longca.plugins import import_file
from longca.processes.child import ask
from longca.processes.child_main import Tell
from longca.processes.lost import ChildLost


def refuse_harmful(path: str, seconds: float, advice: str = "fix it") -> None:
    """Raises BadInput for a file that ends or hangs the process that imports it. Any other fault is told by who loads it."""
    try:
        ask("longca.bench.plan.plugin_trial:Trial", path, {"start": seconds, "import": seconds})
    except ChildLost as lost:
        if lost.status == "timeout":
            raise BadInput(f"the plugin {path} is not imported within {seconds:g} s; {advice}.") from None
        raise BadInput(f"the plugin {path} breaks the process that imports it, so fix it first: {lost.reason}.") from None


class Trial:
    """A service that only imports a file."""

    ready = None

    def __init__(self, path: str, tell: Tell) -> None:
        tell({"phase": "import"})
        with suppress(LongcaError):
            import_file(path, "plugin")

    def handle(self, job: Any) -> Iterator[Any]:
        yield from ()
