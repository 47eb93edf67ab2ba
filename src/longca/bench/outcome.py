"""What becomes of a cell, in words: a status and a reason."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from longca.errors import LongcaError, Refused, Unavailable
from longca.plugins import place
from longca.processes.lost import OUT_OF_MEMORY
from longca.text import LONGEST_REASON, format_memory, printable, short

STATUSES = ("ok", "unsupported", "unavailable", "oom", "timeout", "wrong", "error", "invalid")
PLACE = "longca_place"  # an attribute of errors whose frames are gone
CPU_ALLOCATOR = re.compile(r"DefaultCPUAllocator.* tried to allocate (\d+) bytes", re.DOTALL)


class Wrong(Exception):
    """The check failed; carries what it found."""

    def __init__(self, reason: str, check: dict[str, Any]) -> None:
        super().__init__(reason)
        self.check = check


class NotTried(Exception):
    """The kernel broke its workers too often before; carries the status it had then."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class TooLong(Refused):
    """Memory for every pair of tokens, beyond the length up to which that is tried; --full lifts it."""


def fields_of(error: BaseException) -> dict[str, Any]:
    """What a record says of what a kernel raised."""
    status, reason = of_exception(error)
    return {"status": status, "reason": reason, "check": getattr(error, "check", None), "limited": isinstance(error, TooLong)}


def of_exception(error: BaseException) -> tuple[str, str]:
    """(status, reason) for what a kernel raised."""
    if isinstance(error, Wrong):
        return "wrong", short(str(error))
    if isinstance(error, NotTried):
        return error.status, short(str(error))
    if isinstance(error, Refused):
        return "unsupported", short(str(error).rstrip("."))
    if isinstance(error, Unavailable):
        return "unavailable", short(str(error).rstrip("."))
    text = str(error)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or any(word in text.lower() for word in OUT_OF_MEMORY):
        asked = CPU_ALLOCATOR.search(text)  # which says it in the words of its own source code
        return "oom", f"out of memory: it asked for {format_memory(int(asked[1]))} at once" if asked else short(text) or "out of memory"
    where = place(error) or getattr(error, PLACE, "")
    words = text.rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {text}"  # ours are sentences by themselves
    return "error", short(words, LONGEST_REASON - len(where)) + printable(where)


def forget_frames(error: BaseException) -> None:
    """Drop what holds the tensors of a failed attempt, but not the line of the plugin that raised it."""
    with suppress(AttributeError):  # a class of its own kind may have no room for it
        setattr(error, PLACE, place(error) or getattr(error, PLACE, ""))
    error.__traceback__ = None
