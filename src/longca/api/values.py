"""Values as a Python user writes them (a number, a list, a mapping) or as the command line passes them (a text with commas)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

from longca.errors import BadInput
from longca.text import parse_list

Number = int | float
Texts = str | int | Iterable[Any]  # one entry, or several; a text may hold several between commas


def texts(name: str, value: Texts) -> list[str]:
    """The entries of a value as texts; raises BadInput where there is none."""
    if isinstance(value, str):
        entries = parse_list(value)
    elif isinstance(value, int | float | os.PathLike) and not isinstance(value, bool):
        entries = [str(value)]
    elif isinstance(value, Iterable) and not isinstance(value, Mapping | bytes):
        entries = [_entry(name, entry) for entry in value]
    else:
        raise BadInput(f"{name} must be a text, a number or a list of them, not {value!r}.")
    if not entries:
        raise BadInput(f"{name} is empty; give a value, or leave it out.")
    return entries


def _entry(name: str, entry: object) -> str:
    """A text of one entry; a pair such as (64, 8) is written 64:8."""
    if isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(number, int) for number in entry):
        return f"{entry[0]}:{entry[1]}"
    if not isinstance(entry, str | int | float | os.PathLike) or isinstance(entry, bool) or not str(entry).strip():
        raise BadInput(f"{name} must be a text, a number or a list of them, and one entry is {entry!r}.")
    return str(entry).strip()


def axes(name: str, value: Mapping[str, Number | Iterable[Number]] | None) -> dict[str, list[Number]]:
    """Parameters with one or more values each."""
    if value is not None and not isinstance(value, Mapping):
        raise BadInput(f"{name} must be a dictionary such as {{'w': 512}}, not {value!r}.")
    named = dict[str, list[Number]]()
    for key, numbers in (value or {}).items():
        entries: list[Any] = list(numbers) if isinstance(numbers, list | tuple) else [numbers]
        if not entries or any(isinstance(number, bool) or not isinstance(number, int | float) for number in entries):
            raise BadInput(f"{name}[{key!r}] must be a number, or a list of some, not {numbers!r}.")
        named[key] = entries
    return named


def document_lengths(value: str | os.PathLike[str] | Iterable[int] | None) -> str | tuple[int, ...] | None:
    """The name of a file with lengths, or lengths."""
    if value is None or isinstance(value, str | os.PathLike):
        return None if value is None else os.fspath(value)
    lengths: list[Any] = list(value) if isinstance(value, Iterable) and not isinstance(value, Mapping | bytes) else []
    if not lengths or any(isinstance(length, bool) or not isinstance(length, Integral) or length < 1 for length in lengths):
        raise BadInput(f"documents must be a file, or a list of lengths of 1 token or more, not {value!r}.")
    return tuple(map(int, lengths))
