"""Functions of the Python API that have the fields of a request as their parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import Signature, get_annotations, signature
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def takes(request: Callable[P, R]) -> Callable[[Callable[[R], T]], Callable[P, T]]:
    """Decorates a function of a request. The result is called with the fields of the request, and `help` and type checkers list them: own
    fields of the dataclass first, then those that it shares with other requests."""
    own = set(get_annotations(request)) if isinstance(request, type) else set()
    parameters = sorted(signature(request).parameters.values(), key=lambda parameter: (parameter.kind, parameter.name not in own))

    def decorate(function: Callable[[R], T]) -> Callable[P, T]:
        shown = Signature(parameters, return_annotation=signature(function).return_annotation)

        @wraps(function)
        def call(*args: P.args, **given: P.kwargs) -> T:
            shown.bind(*args, **given)  # a TypeError that does not name the request
            return function(request(*args, **given))

        call.__signature__ = shown  # type: ignore[attr-defined]
        return call

    return decorate


def arguments(request: type, parsed: object, **others: Any) -> dict[str, Any]:
    """The arguments of a request from a parsed command line, where these have the same names, and these others."""
    names = [field.name for field in fields(request)]
    return {name: getattr(parsed, name) for name in names if hasattr(parsed, name)} | others
