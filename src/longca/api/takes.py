"""Functions of the Python API that have the fields of a request as their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from longca.errors import BadInput
from longca.text import short

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
WIDER: dict[Any, Any] = {int: Integral, float: Real, Path: PathLike}  # numbers of numpy, and other paths
PLAIN: dict[Any, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "True or False", Path: "a path", Mapping: "a dictionary"
}  # fmt: skip


def takes(request: Callable[P, R]) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Decorates a function of a request. The result is called with the fields of the request, and `help` and type checkers list them: own
    fields of the dataclass first, then those that it shares with other requests."""
    homes = [get_annotations(home) for home in getattr(request, "__mro__", ())]  # nearest first

    def place(parameter: Parameter) -> tuple[int, int]:
        return parameter.kind, next((number for number, names in enumerate(homes) if parameter.name in names), 0)

    parameters = sorted(signature(request).parameters.values(), key=place)

    def decorate(function: Callable[[R], T]) -> Callable[P, T]:
        shown = Signature(parameters, return_annotation=signature(function).return_annotation)

        @wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> T:
            _refuse_unknown(function.__name__, shown, given)
            bound = shown.bind(*args, **given)  # a TypeError that does not name the request
            _refuse_types(request, bound.arguments)
            return function(request(*args, **given))

        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return decorate


def _refuse_types(request: object, given: Mapping[str, Any]) -> None:
    """Refuses values of another type where a field takes only texts, numbers, paths, truth values and mappings; None is not given."""
    for name, hint in get_type_hints(request).items():
        kinds = [get_origin(kind) or kind for kind in (get_args(hint) if get_origin(hint) in (Union, UnionType) else [hint])]
        value, plain = given.get(name), [kind for kind in kinds if kind is not type(None)]
        if value is not None and all(kind in PLAIN for kind in plain) and not any(_is_a(value, kind) for kind in plain):
            raise BadInput(f"{name} must be {' or '.join(PLAIN[kind] for kind in plain)}, not {short(repr(value), 80)}.")


def _is_a(value: object, kind: Any) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, WIDER.get(kind, kind))


def _refuse_unknown(name: str, shown: Signature, given: Mapping[str, Any]) -> None:
    for unknown in [word for word in given if word not in shown.parameters]:
        close = get_close_matches(unknown, shown.parameters, 1)
        raise TypeError(f"{name}() has no argument {unknown!r}{f'; did you mean {close[0]!r}?' if close else ''}")
