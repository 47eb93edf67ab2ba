"""A cache of prepared kernels that is bounded by the bytes of their tables: lists and intervals of past masks may lie on a GPU."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from threading import RLock
from types import FunctionType, ModuleType
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

FRAMEWORK = True
DEEPEST = 6  # levels of objects in which tensors are looked for
Value = TypeVar("Value")


class BoundedCache(Generic[Value]):
    """A function that remembers its last results, as many as have at most so many bytes of tensors together; the last one always."""

    def __init__(self, make: Callable[..., Value], most_bytes: int) -> None:
        self._make, self._most_bytes, self._lock = make, most_bytes, RLock()
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()

    def __call__(self, *args: Any, **options: Any) -> Value:
        key = args, tuple(sorted(options.items()))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        made = self._make(*args, **options)
        with self._lock:
            self._kept[key] = made, tensor_bytes((made, args))
            while len(self._kept) > 1 and sum(size for _, size in self._kept.values()) > self._most_bytes:
                self._kept.popitem(last=False)
        return made

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def tensor_bytes(value: object, depth: int = DEEPEST) -> int:
    """Returns the bytes of all tensors and arrays that an object holds, each once."""
    return sum(entry.nbytes for entry in tensors_in(value, depth))


def tensors_in(value: object, depth: int = DEEPEST, seen: set[int] | None = None) -> Iterator[torch.Tensor | NDArray[Any]]:
    """Yields all tensors and arrays that an object holds, each once."""
    seen = set() if seen is None else seen
    if depth < 0 or id(value) in seen or isinstance(value, str | bytes | int | float | type | ModuleType | FunctionType):
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor | np.ndarray):
        yield value
        return
    inside = value if isinstance(value, dict) else getattr(value, "__dict__", {})
    for entry in value if isinstance(value, list | tuple | set) else inside.values():
        yield from tensors_in(entry, depth - 1, seen)
