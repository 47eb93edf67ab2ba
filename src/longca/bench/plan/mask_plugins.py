"""Files of users with masks of their own: the run imports these, as masks are built where cells are planned and where they are measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from longca import masks
from longca.errors import BadInput, LongcaError
from longca.masks.own import mentioned_in
from longca.processes.child import ask
from longca.processes.child_main import Tell
from longca.processes.lost import ChildLost
from longca.results.settings import Limits


def load_masks(paths: Sequence[str], seconds: float | None = None) -> list[str]:
    """Loads the masks of those files that use `longca.mask`, and returns their names. A child process imports each file first: importing
    it may do anything, even end the run. Files without masks are left to who asks for their kernels or methods."""
    seconds = Limits().start_s if seconds is None else seconds
    names = []
    for path in paths:
        if Path(path).is_file() and mentioned_in(path):
            _refuse_harmful(path, seconds)
            names += masks.load_plugin(path)  # what it is refused for is told here
    return names


def _refuse_harmful(path: str, seconds: float) -> None:
    try:
        ask("longca.bench.plan.mask_plugins:Trial", path, {"start": seconds, "import": seconds})
    except ChildLost as lost:
        if lost.status == "timeout":
            raise BadInput(f"the plugin {path} is not imported within {seconds:g} s; mend it.") from None
        raise BadInput(f"the plugin {path} breaks the process that imports it, so mend it first: {lost.reason}.") from None


class Trial:
    """A service that only imports a file."""

    ready = None

    def __init__(self, path: str, tell: Tell) -> None:
        tell({"phase": "import"})
        with suppress(LongcaError):
            masks.load_plugin(path)

    def handle(self, job: Any) -> Iterator[Any]:
        yield from ()
