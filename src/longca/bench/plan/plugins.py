"""Users' files with kernels, methods or masks. A child process imports a file before the run does: importing one may do anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from longca import masks
from longca.errors import BadInput, LongcaError
from longca.masks.own import mentioned_in
from longca.plugins import import_file
from longca.processes.child import ask
from longca.processes.child_main import Tell
from longca.processes.lost import ChildLost
from longca.results.settings import Limits


def load_masks(paths: Sequence[str]) -> None:
    """Loads the masks of those files that use `longca.mask`: masks are built where cells are planned and where they are measured.
    Files without masks are left to who asks for their kernels or methods."""
    for path in paths:
        if Path(path).is_file() and mentioned_in(path):
            refuse_harmful(path, Limits().start_s)
            masks.load_plugin(path)


def load_plugin(path: str) -> list[str]:
    """Loads the methods of a user's file, or else its kernels; returns their names."""
    from longca.kernels import registry as kernels
    from longca.parallel import registry as methods

    return methods.load_plugin(path) or kernels.load_plugin(path)


def load_carefully(path: str, seconds: float) -> list[str]:
    """The same after a child process has imported the file."""
    refuse_harmful(path, seconds, "fix it, or give it a longer --deadline")
    return load_plugin(path)


def refuse_harmful(path: str, seconds: float, advice: str = "fix it") -> None:
    """Raises BadInput for a file that ends or hangs the process that imports it. Any other fault is told by who loads it."""
    try:
        ask(f"{__name__}:Importing", path, {"start": seconds, "import": seconds})
    except ChildLost as lost:
        if lost.status == "timeout":
            raise BadInput(f"the plugin {path} is not imported within {seconds:g} s; {advice}.") from None
        raise BadInput(f"the plugin {path} breaks the process that imports it, so fix it first: {lost.reason}.") from None


class Importing:
    """A service that only imports a file."""

    ready = None

    def __init__(self, path: str, tell: Tell) -> None:
        tell({"phase": "import"})
        with suppress(LongcaError):
            import_file(path, "plugin")

    def handle(self, job: Any) -> Iterator[Any]:
        yield from ()
