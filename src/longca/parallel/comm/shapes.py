"""Tensors without numbers: they have a shape, strides, a dtype and a storage, and tell a listener what each operation reads and writes.

They stand in for torch's meta tensors where one rank's program is recorded, because they are ten times as fast. The operations that
programs use have rules here; any other operation runs on meta tensors of the same shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Protocol, cast

import torch

Sizes = tuple[int, ...]
META = torch.device("meta")


class Listener(Protocol):
    """Gets notified of every new storage, freed storage and operation."""

    def allocated(self, size: int, what: str) -> None: ...

    def freed(self, size: int, what: str) -> None: ...

    def worked(self, size: int) -> None:
        """One operation read and wrote so many bytes of memory."""


class Storage:
    """A block of memory; it is freed when no tensor refers to it any more."""

    __slots__ = ("listener", "size", "what")

    def __init__(self, listener: Listener, size: int, what: str) -> None:
        self.listener, self.size, self.what = listener, size, what
        listener.allocated(size, what)

    def __del__(self) -> None:
        self.listener.freed(self.size, self.what)


@lru_cache(maxsize=4096)
def _contiguous(shape: Sizes) -> Sizes:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@lru_cache(maxsize=4096)
def _is_contiguous(shape: Sizes, strides: Sizes) -> bool:
    return all(size == 1 or own == step for size, own, step in zip(shape, strides, _contiguous(shape), strict=True))


@lru_cache(maxsize=64)
def _bytes_of(dtype: torch.dtype) -> int:
    return dtype.itemsize


class Shape:
    """A tensor without numbers."""

    __slots__ = ("bytes", "dtype", "shape", "storage", "strides")
    device = META
    requires_grad = False

    def __init__(self, shape: Sizes, strides: Sizes, dtype: torch.dtype, storage: Storage) -> None:
        self.shape, self.strides, self.dtype, self.storage = shape, strides, dtype, storage
        self.bytes = prod(shape) * _bytes_of(dtype)

    @classmethod
    def empty(cls, listener: Listener, shape: Sequence[int], dtype: torch.dtype, what: str = "") -> Shape:
        sizes = tuple(shape)
        return cls(sizes, _contiguous(sizes), dtype, Storage(listener, prod(sizes) * _bytes_of(dtype), what))

    # -- what it is ------------------------------------------------------------------------------------------------------------

    def numel(self) -> int:
        return prod(self.shape)

    def element_size(self) -> int:
        return _bytes_of(self.dtype)

    def stride(self) -> Sizes:
        return self.strides

    def dim(self) -> int:
        return len(self.shape)

    def size(self, axis: int) -> int:
        return self.shape[axis]

    def __len__(self) -> int:
        return self.shape[0]

    def is_contiguous(self) -> bool:
        return _is_contiguous(self.shape, self.strides)

    # -- views -----------------------------------------------------------------------------------------------------------------

    def _view(self, shape: Sizes, strides: Sizes) -> Shape:
        return Shape(shape, strides, self.dtype, self.storage)

    def __getitem__(self, index: Any) -> Shape:
        if type(index) is slice and index.step in (None, 1):  # most of all
            first, last, _ = index.indices(self.shape[0])
            return self._view((max(0, last - first), *self.shape[1:]), self.strides)
        parts = index if isinstance(index, tuple) else (index,)
        if not all(type(part) is slice and part.step in (None, 1) for part in parts):
            return cast(Shape, _through_meta(torch.Tensor.__getitem__, (self, index), {}))
        shape = list(self.shape)
        for axis, part in enumerate(parts):
            first, last, _ = part.indices(shape[axis])
            shape[axis] = max(0, last - first)
        return self._view(tuple(shape), self.strides)

    def transpose(self, first: int, second: int) -> Shape:
        order = list(range(len(self.shape)))
        order[first], order[second] = order[second], order[first]
        return self.permute(*order)

    def permute(self, *order: int) -> Shape:
        return self._view(tuple(self.shape[axis] for axis in order), tuple(self.strides[axis] for axis in order))

    @property
    def T(self) -> Shape:  # torch's name
        return self.permute(*reversed(range(len(self.shape))))

    def unsqueeze(self, axis: int) -> Shape:
        place = axis % (len(self.shape) + 1)
        return self._view((*self.shape[:place], 1, *self.shape[place:]), (*self.strides[:place], 1, *self.strides[place:]))

    def view(self, *shape: Any) -> Shape:
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in sizes or not self.is_contiguous():
            return cast(Shape, _through_meta(torch.Tensor.view, (self, *shape), {}))
        return self._view(sizes, _contiguous(sizes))

    def split(self, sizes: Sequence[int]) -> list[Shape]:
        return [self._view((size, *self.shape[1:]), self.strides) for size in sizes]

    def detach(self) -> Shape:
        return self

    def expand_as(self, other: Shape) -> Shape:
        strides = tuple(step if size == wanted else 0 for size, step, wanted in zip(self.shape, self.strides, other.shape, strict=True))
        return self._view(other.shape, strides)

    # -- copies and sums -------------------------------------------------------------------------------------------------------

    def _worked(self, *read: Any, written: Shape) -> None:
        size = written.bytes
        for x in read:
            if isinstance(x, Shape):
                size += x.bytes
        self.storage.listener.worked(size)

    def _new(self, shape: Sizes, dtype: torch.dtype, *read: Any, strides: Sizes | None = None, what: str = "") -> Shape:
        made = Shape.empty(self.storage.listener, shape, dtype, what)
        if strides is not None:
            made.strides = strides
        self._worked(*read, written=made)
        return made

    def contiguous(self) -> Shape:
        return self if self.is_contiguous() else self._new(self.shape, self.dtype, self, what="copy")

    def clone(self) -> Shape:
        return self._new(self.shape, self.dtype, self, strides=_dense(self), what="copy")

    def to(self, dtype: torch.dtype) -> Shape:
        return self if dtype == self.dtype else self._new(self.shape, dtype, self, strides=_dense(self), what="cast")

    def index_select(self, axis: int, index: Any) -> Shape:
        shape = (*self.shape[:axis], len(index), *self.shape[axis + 1 :])
        made = Shape.empty(self.storage.listener, shape, self.dtype, "rows")
        self.storage.listener.worked(2 * made.bytes)
        return made

    def index_add_(self, axis: int, index: Any, part: Shape) -> Shape:
        self.storage.listener.worked(part.bytes + 2 * part.numel() * self.element_size())
        return self

    def index_copy_(self, axis: int, index: Any, part: Shape) -> Shape:
        self.storage.listener.worked(2 * part.bytes)
        return self

    def copy_(self, source: Shape) -> Shape:
        self._worked(source, written=self)
        return self

    def __setitem__(self, index: Any, source: Any) -> None:
        target = self[index]
        if target is not source:  # `x[a:b] += y` has worked on the view already
            target._worked(source, written=target)

    def _filled(self, *_: Any) -> Shape:
        self._worked(written=self)
        return self

    zero_ = fill_ = _filled

    def _changed(self, *others: Any, **_: Any) -> Shape:
        self._worked(self, *others, written=self)
        return self

    add_ = sub_ = mul_ = div_ = addcmul_ = nan_to_num_ = __iadd__ = __imul__ = _changed

    def _combined(self, *others: Any, **_: Any) -> Shape:
        shape, dtype = self.shape, self.dtype
        for other in others:
            if isinstance(other, Shape):
                shape = _broadcast(shape, other.shape)
                dtype = dtype if other.dtype == dtype else torch.promote_types(dtype, other.dtype)
        whole = next((x for x in (self, *others) if isinstance(x, Shape) and x.shape == shape), None)  # whose order of axes is kept
        return self._new(shape, dtype, self, *others, strides=None if whole is None else _dense(whole))

    __add__ = __sub__ = __mul__ = __truediv__ = __neg__ = __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _combined
    abs = square = clamp_min = _combined  # on meta tensors, each of them would import torch's compiler, which takes a second

    # -- everything else -------------------------------------------------------------------------------------------------------

    def meta(self) -> torch.Tensor:
        """A meta tensor of the same shape, strides and dtype."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=META)

    def __getattr__(self, name: str) -> Any:
        function = getattr(torch.Tensor, name, None)
        if function is None or name.startswith("__"):
            raise AttributeError(name)
        if not callable(function):
            return getattr(self.meta(), name)
        return lambda *args, **options: _through_meta(function, (self, *args), options)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = _RULES.get(function)
        return rule(*args, **(kwargs or {})) if rule else _through_meta(function, args, kwargs or {})


def _dense(x: Shape) -> Sizes:
    """The strides of a copy that keeps the order of axes, as torch's `to` and `clone` do."""
    return _dense_strides(x.shape, x.strides)


@lru_cache(maxsize=4096)
def _dense_strides(shape: Sizes, strides: Sizes) -> Sizes:
    if _is_contiguous(shape, strides):
        return _contiguous(shape)
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
    packed = _contiguous(tuple(shape[axis] for axis in order))
    return tuple(packed[order.index(axis)] for axis in range(len(order)))


def _broadcast(left: Sizes, right: Sizes) -> Sizes:
    return left if left == right else tuple(torch.broadcast_shapes(left, right))


_RULES: dict[Any, Callable[..., Any]] = dict.fromkeys(
    (torch.sigmoid, torch.logaddexp, torch.exp, torch.maximum, torch.add, torch.mul, torch.sub), Shape._combined
)


def _through_meta(function: Any, args: Sequence[Any], options: dict[str, Any]) -> Any:
    """Runs any function of torch on meta tensors. Results that share memory with an argument are views of it, others new storages."""
    owners: dict[int, Shape] = {}
    metas: list[torch.Tensor] = []

    def lowered(value: Any) -> Any:
        if isinstance(value, Shape):
            meta = value.meta()
            owners[meta.untyped_storage()._cdata] = value
            metas.append(meta)  # keeps its storage's number from being used again
            return meta
        if isinstance(value, list | tuple):
            return type(value)(map(lowered, value))
        return value

    results = function(*map(lowered, args), **{name: lowered(value) for name, value in options.items()})
    listener = next(iter(owners.values())).storage.listener
    made: list[Shape] = []

    def lifted(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(map(lifted, value))
        if not isinstance(value, torch.Tensor):
            return value
        owner = owners.get(value.untyped_storage()._cdata)
        shape = tuple(value.shape)
        storage = owner.storage if owner else Storage(listener, value.untyped_storage().nbytes(), "")
        made.append(Shape(shape, value.stride(), value.dtype, storage))
        return made[-1]

    lifted_results = lifted(results)
    name = getattr(function, "__name__", "")
    in_place = name.endswith("_") and not name.endswith("__")
    storages = {id(owner.storage) for owner in owners.values()}
    if in_place or any(id(shape.storage) not in storages for shape in made):
        listener.worked(sum(owner.bytes for owner in owners.values()) + sum(shape.bytes for shape in made))
    owners.clear()  # the functions above refer to themselves: what they hold would live until the next garbage collection
    made.clear()
    return lifted_results
