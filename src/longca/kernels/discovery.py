"""Finds kernels by name: those of `backends/`, of plugin files, of installed entry points, and objects of the Python API. Nothing here
imports torch."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from longca import code_version
from longca.errors import BadInput, LongcaError, unknown
from longca.kernels import backends
from longca.kernels.base import Kernel
from longca.kernels.plugin_checks import refuse_borrowed, refuse_incomplete
from longca.masks.own import of_module
from longca.plugins import PREFIX, defined_in, files_of, import_file, nameless_in, refuse_same_names, refuse_taken, refuse_twice
from longca.text import plural

FRAMEWORK = True
_plugins: dict[str, type[Kernel]] = {}
_lent: dict[str, Kernel | type[Kernel]] = {}  # kernels that a caller of the Python API gave as objects, while it runs
_packages: dict[str, tuple[str, str]] = {}  # by module: name and version of the installed package that offers a kernel
broken: dict[str, str] = {}  # by entry point: why an installed kernel cannot be loaded


@cache
def own() -> dict[str, type[Kernel]]:
    """Returns the kernels of LongCA: every module below `backends/` whose name does not begin with an underscore is searched."""
    classes: dict[str, type[Kernel]] = {}
    for module in pkgutil.walk_packages(backends.__path__, f"{backends.__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            classes |= defined_in(importlib.import_module(module.name), Kernel)
    return classes


@cache
def _installed() -> dict[str, type[Kernel]]:
    """Returns the kernels of installed packages, and lists in `broken` those that cannot be loaded."""
    installed: dict[str, type[Kernel]] = {}
    for entry in entry_points(group="longca.kernels"):
        try:
            with code_version.recording_imports(entry.value.partition(":")[0]):
                offered = defined_in(entry.load(), Kernel)
            for kernel in offered.values():
                refuse_incomplete(kernel, entry.value)
                _packages[kernel.__module__] = (entry.dist.name, entry.dist.version) if entry.dist else (kernel.__module__, "")
            installed |= offered
        except LongcaError as error:
            broken[entry.name] = str(error).rstrip(".")
        except Exception as error:  # a broken package of somebody else must not hide the others
            broken[entry.name] = f"its package fails when it is imported: {type(error).__name__}: {error}"
    return installed


def load_plugin(path: str | Path) -> list[str]:
    """Adds the kernels of a user's file and returns their names."""
    module = import_file(path, "kernel")
    for nameless in nameless_in(module, Kernel):
        usual = f"name = '{nameless.__name__.lower()}'"
        raise BadInput(f"the class {nameless.__name__} of the plugin {path} has no name; write one into it, such as {usual}.")
    refuse_same_names(module, Kernel, path, "kernel")
    defined = defined_in(module, Kernel)
    if not defined and of_module(module.__name__):  # it has masks only
        return []
    if not defined:
        refuse_borrowed(module, path)
        raise BadInput(
            f"the plugin {path} has no kernel: write a class derived from longca.Kernel, or decorate a function with @longca.kernel "
            "(or with @longca.mask for a mask)."
        )
    for kernel in defined.values():
        refuse_incomplete(kernel, path)
    refuse_taken(defined, own(), path, "kernel")
    refuse_twice(defined, files_of(_plugins), path, "kernel")
    _plugins.update(defined)
    return list(defined)


@contextmanager
def lent(kernels: Iterable[Kernel | type[Kernel]]) -> Iterator[None]:
    """Makes kernels known by their names for a while; a later definition of a name replaces an earlier one."""
    before = dict(_lent)
    for kernel in kernels:
        defined = type(kernel) if isinstance(kernel, Kernel) else kernel
        refuse_incomplete(defined, defined.__module__)
        if defined.name in own() and not is_ours(defined("")):
            raise BadInput(f"the kernel {defined.name!r} has the name of a kernel of LongCA; choose another name.")
        _lent[defined.name] = kernel
    try:
        yield
    finally:
        _lent.clear()
        _lent.update(before)


def label_of(kernel: Kernel | type[Kernel]) -> str:
    """Returns the name that a kernel is asked for by, with the variant of an object that has one."""
    return kernel.label if isinstance(kernel, Kernel) else kernel.name


def classes() -> dict[str, type[Kernel]]:
    """Returns all kernels by name."""
    given = {name: type(kernel) if isinstance(kernel, Kernel) else kernel for name, kernel in _lent.items()}
    return {**own(), **_installed(), **_plugins, **given}


def names() -> list[str]:
    return sorted(classes())


def labels(name: str) -> list[str]:
    """Returns the names of a kernel's variants as name:variant; the bare name where it has none."""
    variants = classes()[name].variants
    return [f"{name}:{variant}" for variant in variants] or [name]


def get(label: str) -> Kernel:
    """Returns a kernel by name, or by name:variant; the bare name of a kernel with variants stands for all of them (see `choose`)."""
    name, _, variant = label.partition(":")
    if name not in classes():
        raise unknown("kernel", name, names())
    kernel = classes()[name]
    if variant and variant not in kernel.variants:
        raise unknown(f"variant of {name}", variant, list(kernel.variants))
    given = _lent.get(name)
    return given if isinstance(given, Kernel) and variant in ("", given.variant) else kernel(variant)


def plugin_class(label: object) -> type[Kernel] | None:
    """Returns the class that a plugin file defines under a name: another one after the file was loaded again. None for what is no such
    name."""
    return _plugins.get(label.partition(":")[0]) if isinstance(label, str) else None


def file_of(kernel: Kernel) -> str:
    """Returns the plugin file that defines a kernel; empty for kernels of LongCA and of installed packages."""
    module = type(kernel).__module__
    return os.path.relpath(str(sys.modules[module].__file__)) if module.startswith(PREFIX) else ""


def is_ours(kernel: Kernel) -> bool:
    """Whether a kernel is part of LongCA."""
    return type(kernel) in own().values()


def is_file(asked: str) -> bool:
    """Whether a text stands for a plugin file, and not for the name of a kernel."""
    return asked.endswith(".py") or "/" in asked


@cache  # a process runs what it imported, and not a later edit
def only_kernel(path: str) -> str:
    """Returns the name of a plugin file's only kernel."""
    names = load_plugin(path)
    if len(names) != 1:
        advice = "give the name of one" if names else "give another file, or a name (`longca ls kernels`)"
        raise BadInput(f"{path} has {plural(len(names), 'kernel')}{': ' if names else ''}{', '.join(names)}; {advice}.")
    return names[0]


def is_lent(kernel: Kernel) -> bool:
    """Whether a caller of the Python API gave it as an object, or its class."""
    return _lent.get(kernel.name) in (kernel, type(kernel))


def package_of(module: str) -> dict[str, str]:
    """Returns the name and version of the installed package that offers the kernels of a module; empty where none does."""
    return dict([_packages[module]]) if module in _packages else {}
