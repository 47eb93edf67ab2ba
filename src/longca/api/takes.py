"""Functions of the Python API that have the fields of a request as their parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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
            shown.bind(*args, **given)  # a TypeError that does not name the request
            return function(request(*args, **given))

        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return decorate


def _refuse_unknown(name: str, shown: Signature, given: Mapping[str, Any]) -> None:
    for unknown in [word for word in given if word not in shown.parameters]:
        close = get_close_matches(unknown, shown.parameters, 1)
        raise TypeError(f"{name}() has no argument {unknown!r}{f'; did you mean {close[0]!r}?' if close else ''}")
