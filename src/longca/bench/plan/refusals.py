"""What is wrong in a user's file or settings, in one sentence: the field, what it may be, and what is there instead."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from longca.errors import BadInput, unknown
from longca.results.schema import clause
from longca.text import short

KINDS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list", "object": "a table"}
BOUNDS = {">=": "of {} or more", ">": "over {}", "<=": "of {} or less", "<": "under {}"}
NAMES = {bool: "bool", int: "int", float: "float", str: "str", list: "array", dict: "object", type(None): "null"}
LONGEST_VALUE = 80  # characters of a value that are shown
# as msgspec says it: what was expected, with which bound, what was there instead, at which place
_MESSAGE = re.compile(
    r"^(?:Expected `(?P<wanted>[^`]+)`(?: (?P<bound>[<>]=?) (?P<limit>\S+?))?(?:, got `(?P<got>[^`]+)`)?"
    r"|Invalid enum value .*?|(?P<words>.*?))(?: - at `\$\.?(?P<place>.*)`)?$",
    re.DOTALL,
)
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\.\.\.)\]")
T = TypeVar("T")


def convert(values: Any, kind: type[T], where: str = "") -> T:
    """The values as a struct; raises BadInput with the place, the field and what it may be. Without a place the sentence begins with the
    field, as it does for flags that a user typed."""
    if isinstance(values, Mapping):
        _refuse_unknown(values, kind, where)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, values, kind, where) from error


def _refuse_unknown(values: Mapping[str, Any], kind: type[Any], where: str) -> None:
    """Refuses names that the struct, or a struct in it, does not have."""
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"setting in {where}:", name, list(known))
        if isinstance(value, Mapping) and isinstance(known[name], type) and issubclass(known[name], msgspec.Struct):
            _refuse_unknown(value, known[name], f"[{name}] of {where}")


def _refusal(error: msgspec.ValidationError, values: Any, kind: type[Any], where: str) -> BadInput:
    message, begin = _MESSAGE.match(str(error)), f"{where}: " if where else ""
    if message is None or (message["words"] is not None and "missing required" in message["words"]):
        return BadInput(f"{begin}{clause(error)}.")
    if message["words"] is not None:  # of a struct's own rule, which names its fields
        return BadInput(f"{begin}{message['words']}.")
    name, value = _find(values, message["place"] or "", message["got"])
    if message["wanted"] is None:
        known = [entry.value for enum in _enums(_annotation(kind, re.split(r"[.\[]", name))) for entry in enum]
        return BadInput(f"{begin}{unknown(f'value of {name}:', str(value), known)}")
    return BadInput(f"{begin}{name or 'it'} must be {_wanted(message)}, not {_shown(value)}.")


def _wanted(message: re.Match[str]) -> str:
    parts = message["wanted"].split(" | ")
    words = " or ".join(KINDS.get(part, part) for part in parts if part != "int" or "float" not in parts)
    return words + (" " + BOUNDS[message["bound"]].format(message["limit"].removesuffix(".0")) if message["bound"] else "")


def _find(values: Any, place: str, got: str | None) -> tuple[str, Any]:
    """The name and the value of the place; msgspec does not say which key of a table, so the first that has what it got is taken."""
    found = list(_candidates(values, [first or second for first, second in _STEP.findall(place)], ""))
    return next((entry for entry in found if NAMES.get(type(entry[1])) == got), found[0] if found else (place, values))


def _candidates(values: Any, steps: list[str], name: str) -> Iterator[tuple[str, Any]]:
    if not steps:
        yield name, values
    elif isinstance(values, Mapping):
        for key in [steps[0]] if steps[0] in values else list(values) if steps[0] == "..." else []:
            yield from _candidates(values[key], steps[1:], f"{name}.{key}" if name else str(key))
    elif isinstance(values, list | tuple) and steps[0].isdecimal() and int(steps[0]) < len(values):
        yield from _candidates(values[int(steps[0])], steps[1:], f"{name}[{steps[0]}]")


def _annotation(kind: type[Any], names: list[str]) -> Any:
    """The type of a field, or of a field of the struct in it."""
    field = get_type_hints(kind).get(names[0])
    if isinstance(field, type) and issubclass(field, msgspec.Struct) and len(names) > 1:
        return _annotation(field, names[1:])
    return field


def _enums(annotation: Any) -> Iterator[type[Enum]]:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        yield annotation
    for part in get_args(annotation):
        yield from _enums(part)


def _shown(value: Any) -> str:
    try:
        finite = msgspec.json.decode(msgspec.json.encode(value)) == value
    except (TypeError, msgspec.MsgspecError):
        finite = False
    return short(msgspec.json.encode(value).decode() if finite else str(value), LONGEST_VALUE)
