"""From what a kernel raised to an outcome: a status and a reason."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import msgspec

from longca.errors import LongcaError, Refused, Unavailable, is_out_of_memory
from longca.plugins import place
from longca.results.record import Check, Outcome, Status
from longca.text import LONGEST_REASON, out_of_memory, printable, short

PLACE = "longca_place"  # an attribute of errors whose frames are gone


class CellFailed(Exception):
    """The cell has no time: the status and reason of its record, and the errors that the check found."""

    def __init__(self, status: Status, reason: str, check: Check | None = None) -> None:
        super().__init__(reason)
        self.status, self.check = status, check


def failure(error: BaseException, **fields: Any) -> Outcome:
    """The outcome for what was raised; `fields` are what is known besides."""
    status, reason = status_of(error)
    return Outcome(status=status, reason=reason, check=getattr(error, "check", None), **fields)


def status_of(error: BaseException) -> tuple[Status, str]:
    text = str(error)
    if isinstance(error, CellFailed):
        return error.status, short(text)
    if isinstance(error, Refused):
        return Status.UNSUPPORTED, short(text.rstrip("."))
    if isinstance(error, Unavailable):
        return Status.UNAVAILABLE, short(text.rstrip("."))
    if is_out_of_memory(error):
        return Status.OOM, out_of_memory(text)
    where = place(error) or getattr(error, PLACE, "")
    words = text.rstrip(".") if isinstance(error, LongcaError) else f"{type(error).__name__}: {text}"
    return Status.ERROR, short(words, LONGEST_REASON - len(where)) + printable(where)


def drop_frames(error: BaseException) -> None:
    """Drops the frames that hold the tensors of a failed attempt, and keeps the line of the plugin that raised it."""
    with suppress(AttributeError):  # a class with slots may have no room for it
        setattr(error, PLACE, place(error) or getattr(error, PLACE, ""))
    raised: BaseException | None = error
    while raised is not None:  # also those of the errors that it came from
        raised.__traceback__ = None
        raised = raised.__context__


def to_message(reply: msgspec.Struct) -> Any:
    """A reply for the pipe: numbers with six digits, which is more than any clock is worth, and null for what is not finite."""
    return _plain(msgspec.to_builtins(reply))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value
