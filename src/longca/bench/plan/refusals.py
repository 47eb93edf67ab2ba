"""What is wrong in a user's file or settings, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from longca.errors import BadInput, unknown

T = TypeVar("T")


def convert(values: Any, kind: type[T], where: str = "") -> T:
    """The values as a struct; raises BadInput with the place, the field, and what msgspec says of it. Flags that a user
    typed have no place."""
    if isinstance(values, Mapping):
        _refuse_unknown(values, kind, where)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$.")
        field = place.rstrip("`")
        given = values.get(field) if isinstance(values, Mapping) else None
        words += f", not {given!r}" if isinstance(given, str | int | float) and "got" not in words else ""
        raise BadInput(": ".join(part for part in (where, field, f"{words}.") if part)) from error


def _refuse_unknown(values: Mapping[str, Any], kind: type[Any], where: str) -> None:
    """Refuses names that the struct, or a struct in it, does not have."""
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"setting in {where}:", name, list(known))
        if isinstance(value, Mapping) and isinstance(known[name], type) and issubclass(known[name], msgspec.Struct):
            _refuse_unknown(value, known[name], f"[{name}] of {where}")
