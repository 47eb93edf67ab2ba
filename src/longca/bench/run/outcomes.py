"""What becomes of a cell, in words: a status and a reason."""

from __future__ import annotations

import re
import signal
from contextlib import suppress
from typing import Any
from unicodedata import category

from longca.errors import LongcaError, Refused, Unavailable
from longca.plugins import place
from longca.text import format_memory

STATUSES = ("ok", "unsupported", "unavailable", "oom", "timeout", "wrong", "error", "invalid")
LONGEST_REASON = 400
PLACE = "longca_place"  # an attribute of errors whose frames are gone
PHASES = {"start": "starting", "build": "building", "reference": "the reference", "check": "checking", "time": "measuring"}
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory", "std::bad_alloc", "cudaerrormemoryallocation")

COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # as compilers put them into their messages
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


def of_exit(code: int, phase: str, output: str) -> tuple[str, str]:
    """(status, reason) for a worker that is gone."""
    tail = last_words(output)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        how = f"its process was killed by {name}"
    else:
        how = f"its process ended with exit code {code}"
    status = "oom" if any(word in output.lower() for word in OUT_OF_MEMORY) else "error"
    return status, short(f"{how} during {PHASES.get(phase, phase)}" + (f"; its last words: {tail}" if tail else ""))


def last_words(output: str) -> str:
    """The line of a dying process that says most: the last one that is no frame of a stack."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("File ", "Current thread", "Thread ", "Extension modules", "...", "<"))]
    return telling[-1][:200] if telling else ""


def short(text: str, longest: int = LONGEST_REASON) -> str:
    """One line of bounded length, fit to be shown and written anywhere."""
    line = printable(" ".join(COLOURS.sub("", text).split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def printable(text: str) -> str:
    """Without what would disturb a terminal or cannot be written as UTF-8: control characters, halves of surrogate pairs."""
    if text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if category(letter) in ("Cc", "Cs") else letter for letter in text)
