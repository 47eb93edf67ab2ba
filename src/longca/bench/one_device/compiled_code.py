"""Compiled code: kept on disk for the next process, and dropped before a process has too much of it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from longca.kernels import registry
from longca.kernels.base import CompileCache

MOST_GRAPHS = 32  # each may be compiled again, with and without gradients; flex stops at 64


def keep_on_disk() -> None:
    """Has libraries keep their compiled code on disk, in this process and all that it starts; variables that are set already stay."""
    with suppress(OSError, RuntimeError):  # a folder that cannot be made, or a user without a home: no cache
        for cache, folder in _folders():
            folder.mkdir(parents=True, exist_ok=True)
            os.environ.setdefault(cache.enable, "1")
            os.environ.setdefault(cache.folder, str(folder))


def is_cold() -> bool:
    """Whether no library has compiled code on disk yet."""
    with suppress(OSError, RuntimeError):
        return not any(path.is_file() for _, folder in _folders() for path in folder.rglob("*"))
    return True


def _folders() -> list[tuple[CompileCache, Path]]:
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "longca"
    return [(cache, Path(os.environ.get(cache.folder, home / name))) for name, cache in registry.compile_caches().items()]


class CompiledGraphs:
    """Graphs that torch.compile made in this process. It keeps one for every shape of inputs and masks, and stops after a number of them.

    torch counts them itself: nobody else knows what it compiles again for.
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
