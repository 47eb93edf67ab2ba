"""Kernels as a Python user names them: a name, a plugin file, a decorated function, or a class or object derived from longca.Kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from os import PathLike, fspath
from typing import Any

from longca.errors import BadInput
from longca.kernels import registry
from longca.kernels.base import Kernel
from longca.text import parse_list


@dataclass(frozen=True)
class Asked:
    """Names of kernels, plugin files of which all kernels are meant, and kernels that only this process has."""

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    objects: tuple[Kernel | type[Kernel], ...] = ()

    @property
    def labels(self) -> list[str]:
        """The names, and those of the objects."""
        return [*self.names, *map(registry.label_of, self.objects)]

    def refuse_limits(self, **limits: object) -> None:
        """Raises BadInput for limits of processes where kernels are objects, which run in this one."""
        if self.objects and (given := [name for name, value in limits.items() if value is not None]):
            here = "it runs in this process; give its file, or leave it out"
            raise BadInput(f"{given[0]} has no effect on a kernel that is a Python object: {here}.")

    @property
    def own(self) -> list[str]:
        """The names of the objects without their variants."""
        return [kernel.name for kernel in self.objects]


def asked(kernels: Any) -> Asked:
    """Sorts kernels by their kind; a text may hold several names between commas."""
    names, files, objects = list[str](), list[str](), list[Kernel | type[Kernel]]()
    for entry in _entries(kernels):
        if isinstance(entry, PathLike):
            files.append(fspath(entry))
        elif isinstance(entry, str):
            for text in parse_list(entry):
                (files if registry.is_file(text) else names).append(text)
        else:
            registry.refuse_no_kernel(entry)
            objects.append(entry)
    for first, second in combinations(objects, 2):
        if first is not second and registry.label_of(first) == registry.label_of(second):
            raise BadInput(f"two of the kernels have the name {registry.label_of(first)!r}; choose another name for one.")
    if not (names or files or objects):
        raise BadInput("kernels is empty; give a name, a plugin file or a kernel, or leave it out.")
    return Asked(tuple(names), tuple(files), tuple(objects))


def _entries(kernels: Any) -> Iterable[Any]:
    single = isinstance(kernels, str | PathLike | Kernel | type) or callable(kernels) or isinstance(kernels, Mapping)
    return [kernels] if single or not isinstance(kernels, Iterable) else kernels
