"""Handles of masks: a whole number for each, under which code that cannot hold a Python object finds it again.

`torch.compile` traces a mask as an object with attributes. A handle is an ordinary attribute for it, so it compiles once for all masks of
one length, not once per mask. A mask that nobody holds any more has no handle either.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

F = TypeVar("F", bound=Callable[..., Any])
_NUMBERS = count(1)
_MASKS: WeakValueDictionary[int, Any] = WeakValueDictionary()


class Handled:
    """Base of masks: gives each a handle when it is made, also where `__init__` does not run."""

    handle: int

    def __new__(cls, *_: Any, **__: Any) -> Self:
        made = super().__new__(cls)
        made.handle = next(_NUMBERS)
        _MASKS[made.handle] = made
        return made

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the handle out of copies and pickles: it is a number of this process."""
        return {name: value for name, value in self.__dict__.items() if name != "handle"}


def constant(function: F) -> F:
    """Lets torch.compile call a function while it traces, and keep the result: a mask that is built there is made once."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # what torch.compiler.assume_constant_result sets
    return function


def mask_of(handle: int) -> Any:
    """Returns the mask with this handle; raises KeyError where it is gone."""
    return _MASKS[handle]
