"""What a user's kernel must have: settings that make sense, a name, both methods, and the files that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from longca.errors import BadInput
from longca.kernels.base import BYTES, BackwardKind, Kernel, Layout, SinkSupport
from longca.plugins import refuse_odd_name

FRAMEWORK = True
CHOICES = {"layout": get_args(Layout), "backward": get_args(BackwardKind), "sinks": get_args(SinkSupport)}
LISTS = ("devices", "variants", "modules", "own_files", "dtypes", "archs")
ARCH = re.compile(r"sm_?(\d{2,3})[af]?")  # sm90, sm_90 and sm_90a are one
DEVICES = ("cpu", "cuda")


def refuse_borrowed(module: ModuleType, path: str | Path) -> None:
    """Raises BadInput where the kernels of a plugin, or the functions that they are made of, are only imported from another module."""
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Kernel) and not value.__abstractmethods__:
            here = "write a class that derives from it, or a decorated function that calls it, into this one"
            raise BadInput(f"the kernel {name} of the plugin {path} is from the module {value.__module__}; {here}.")


def refuse_incomplete(kernel: type[Kernel], path: str | Path) -> None:
    """Raises BadInput where a kernel's settings, names, methods or own files are missing or make no sense."""
    refuse_settings(kernel)
    for name in (kernel.name, *kernel.variants):
        refuse_odd_name(name, path, "kernel" if name is kernel.name else f"variant of {kernel.name}")
    if lacking := sorted(kernel.__abstractmethods__):
        raise BadInput(
            f"the kernel {kernel.name!r} of the plugin {path} has no {' and no '.join(lacking)}; a kernel needs both, "
            "see docs/write-a-kernel.md."
        )
    instances = [kernel(variant) for variant in kernel.variants or ("",)]
    if missing := [file for instance in instances for file in instance.own_paths() if not file.is_file()]:
        raise BadInput(f"the kernel {kernel.name!r} of the plugin {path} names {missing[0]} in own_files, and there is no such file.")


def refuse_settings(kernel: type[Kernel]) -> None:
    """Raises BadInput where a class has a setting of the wrong type or with an unknown value."""
    for name, known in CHOICES.items():
        value = getattr(kernel, name)
        if not isinstance(value, property) and value is not None and value not in known:
            raise BadInput(f"the kernel {kernel.name!r} has {name} = {value!r}; it must be one of {', '.join(map(repr, known))}.")
    for name in LISTS:
        value = getattr(kernel, name)
        if not isinstance(value, tuple | list | property) or not all(isinstance(entry, str) for entry in _entries(value)):
            raise BadInput(f"the kernel {kernel.name!r} has {name} = {value!r}; it must be a tuple of strings, such as ('a',).")
    if odd := [device for device in _entries(kernel.devices) if device not in DEVICES]:
        raise BadInput(f"the kernel {kernel.name!r} is for the device {odd[0]!r}; known are {' and '.join(DEVICES)}.")
    if odd := [dtype for dtype in _entries(kernel.dtypes) if dtype not in BYTES]:
        raise BadInput(f"the kernel {kernel.name!r} is for the dtype {odd[0]!r}; known are {', '.join(BYTES)}.")
    if odd := [arch for arch in _entries(kernel.archs) if not ARCH.fullmatch(arch)]:
        raise BadInput(f"the kernel {kernel.name!r} is for the GPU {odd[0]!r}; write compute capability 9.0 as 'sm90'.")
    sizes = kernel.head_dims
    if not isinstance(sizes, Sequence | property) or not all(isinstance(size, int) and size > 0 for size in _entries(sizes)):
        raise BadInput(f"the kernel {kernel.name!r} has head_dims = {sizes!r}; it must be a tuple of whole numbers, such as (64, 128).")
    least = kernel.capability
    if not (isinstance(least, tuple) and len(least) == 2 and all(isinstance(number, int) for number in least)):
        raise BadInput(f"the kernel {kernel.name!r} has capability = {least!r}; it must be two whole numbers, such as (9, 0).")


def _entries(value: object) -> Iterable[Any]:
    """Returns the entries of a list; none of a property, which only an instance can evaluate."""
    return value if isinstance(value, tuple | list | range) else ()


def arch_name(arch: str) -> str:
    """Returns how LongCA writes an architecture: without an underscore, and without the letter of its own instructions."""
    return ARCH.sub(r"sm\1", arch)
