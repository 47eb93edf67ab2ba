"""What is compiled once: kept on disk for the next process, and forgotten before a process has too much of it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

MOST_GRAPHS = 32  # each may be compiled again, with and without gradients; flex stops at 64
# libraries that compile for ten seconds and more per process unless they are told to keep what they made: the start of their variables
ON_REQUEST = {"FLASH_ATTENTION": "fa4", "FLEX_ATTENTION": "cudnn_flex"}


def keep_on_disk() -> None:
    """For this process and all that it starts, as Triton and torch.compile do unasked; whoever has set these variables knows better."""
    with suppress(OSError, RuntimeError):  # a folder that cannot be made, or a user without a home: no cache
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "longca"
        for library, name in ON_REQUEST.items():
            (home / name).mkdir(parents=True, exist_ok=True)
            os.environ.setdefault(f"{library}_CUTE_DSL_CACHE_ENABLED", "1")
            os.environ.setdefault(f"{library}_CUTE_DSL_CACHE_DIR", str(home / name))


class Compilations:
    """torch.compile's, in this process: it keeps what it made for every shape of inputs and of masks, and stops after a number of graphs.

    Graphs are counted by torch itself: nobody else knows what it compiles again for.
    """

    def __init__(self) -> None:
        self._forgotten = 0

    def limit(self) -> None:
        dynamo: Any = sys.modules.get("torch._dynamo")
        if dynamo is None:
            return
        made = dynamo.utils.counters["stats"]["unique_graphs"]
        if made - self._forgotten > MOST_GRAPHS:
            dynamo.reset()
            self._forgotten = made
