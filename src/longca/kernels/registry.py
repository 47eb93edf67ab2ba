"""Finding kernels: every module of this package, every plugin file, every installed entry point. None of it imports torch."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import cast

from longca import devices, kernels, sources
from longca.errors import BadInput, LongcaError, Refused, Unavailable, unknown
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Yes, module_path
from longca.kernels.plugin import refuse_settings
from longca.masks import AnyMask
from longca.plugins import PREFIX, defined_in, import_file, nameless_in, refuse_odd_name, refuse_same_names, refuse_taken, refuse_twice

_LIBRARIES = {"base", "inputs", "lower", "registry", "functional", "plugin", "adapting", "overview", "selected"}  # some import torch
_plugins: dict[str, type[Kernel]] = {}
_packages: dict[str, tuple[str, str]] = {}  # by module: name and version of the installed package that a kernel is from
broken: dict[str, str] = {}  # installed kernels that cannot be loaded, and why


@cache
def _own() -> dict[str, type[Kernel]]:
    found: dict[str, type[Kernel]] = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        if module.name not in _LIBRARIES and not module.name.startswith("_"):
            found |= defined_in(importlib.import_module(f"longca.kernels.{module.name}"), Kernel)
    return found


@cache
def _installed() -> dict[str, type[Kernel]]:
    found: dict[str, type[Kernel]] = {}
    for entry in entry_points(group="longca.kernels"):
        try:
            with sources.noting(entry.value.partition(":")[0]):
                offered = defined_in(entry.load(), Kernel)
            for kernel in offered.values():
                _refuse_incomplete(kernel, entry.value)
                _packages[kernel.__module__] = (entry.dist.name, entry.dist.version) if entry.dist else (kernel.__module__, "")
            found |= offered
        except LongcaError as error:
            broken[entry.name] = str(error).rstrip(".")
        except Exception as error:  # somebody else's package must not take the others down
            broken[entry.name] = f"its package fails when it is imported: {type(error).__name__}: {error}"
    return found


def load_plugin(path: str | Path) -> list[str]:
    """Take the kernels of a user's file; returns their names."""
    module = import_file(path, "kernel")
    for nameless in nameless_in(module, Kernel):
        usual = f"name = '{nameless.__name__.lower()}'"
        raise BadInput(f"the class {nameless.__name__} of the plugin {path} has no name; write one into it, such as {usual}.")
    refuse_same_names(module, Kernel, path, "kernel")
    found = defined_in(module, Kernel)
    if not found:
        _refuse_borrowed(module, path)
        raise BadInput(
            f"the plugin {path} has no kernel: write a class derived from longca.Kernel, or decorate a function with @longca.kernel."
        )
    for kernel in found.values():
        _refuse_incomplete(kernel, path)
    refuse_taken(found, _own(), path, "kernel")
    refuse_twice(found, _plugins, path, "kernel")
    _plugins.update(found)
    return list(found)


def _refuse_borrowed(module: ModuleType, path: str | Path) -> None:
    """A kernel that was only imported, or made of a function that was, belongs to the file that it is from."""
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Kernel) and not value.__abstractmethods__:
            here = "write a class that derives from it, or a decorated function that calls it, into this one"
            raise BadInput(f"the kernel {name} of the plugin {path} is from the module {value.__module__}; {here}.")


def _refuse_incomplete(kernel: type[Kernel], path: str | Path) -> None:
    refuse_settings(kernel)
    for name in (kernel.name, *kernel.variants):
        refuse_odd_name(name, path, "kernel" if name is kernel.name else f"variant of {kernel.name}")
    if lacking := sorted(kernel.__abstractmethods__):
        raise BadInput(
            f"the kernel {kernel.name!r} of the plugin {path} has no {' and no '.join(lacking)}; a kernel needs both, see docs/kernels.md."
        )
    made = [kernel(variant) for variant in kernel.variants or ("",)]
    if missing := [file for one in made for file in one.own_paths() if not file.is_file()]:
        raise BadInput(f"the kernel {kernel.name!r} of the plugin {path} names {missing[0]} in own_files, and there is no such file.")


def classes() -> dict[str, type[Kernel]]:
    return {**_own(), **_installed(), **_plugins}


def names() -> list[str]:
    return sorted(classes())


def labels(name: str) -> list[str]:
    """The variants of a kernel, as one asks for them; the bare name where it has none."""
    variants = classes()[name].variants
    return [f"{name}:{variant}" for variant in variants] or [name]


def available_labels(device: str) -> list[str]:
    """Every variant of every kernel that this machine can run."""
    return [label for name in names() for label in labels(name) if available(get(label), device)]


def get(label: str) -> Kernel:
    """A kernel by name, or by name:variant; the bare name of a kernel with variants stands for all of them (see `choose`)."""
    name, _, variant = label.partition(":")
    if name not in classes():
        raise unknown("kernel", name, names())
    kernel = classes()[name]
    if variant and variant not in kernel.variants:
        raise unknown(f"variant of {name}", variant, list(kernel.variants))
    return kernel(variant)


def file_of(kernel: Kernel) -> str:
    """The user's file that a kernel is from; empty for our own and for those of installed packages."""
    module = type(kernel).__module__
    return os.path.relpath(str(sys.modules[module].__file__)) if module.startswith(PREFIX) else ""


def is_ours(kernel: Kernel) -> bool:
    return type(kernel) in _own().values()


def available(kernel: Kernel, device: str) -> Answer:
    """Whether its package is there and this device can run it."""
    if device not in kernel.devices:
        return No(f"runs on {' and '.join(kernel.devices)} only" + (f"; there: {kernel.getting}" if kernel.getting else ""))
    missing = [module for module in kernel.modules if module_path(module) is None]
    if missing:
        return No(kernel.getting or f"needs {', '.join(missing)}")
    if device == "cuda" and not devices.gpus():
        return No("there is no GPU here")
    if device == "cuda" and (found := devices.capability()) < kernel.capability:
        least = ".".join(map(str, kernel.capability))
        return No(f"needs compute capability {least}, this device has {'.'.join(map(str, found))}")
    return kernel.present()


def versions(kernel: Kernel) -> dict[str, str]:
    """What would change its figures if it changed. Of a kernel that is not LongCA's: the package that it is from, if it is installed, and
    the code of all modules of the user's own that it is made of."""
    found, module = kernel.versions(), type(kernel).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if is_ours(kernel) or file is None:
        return found
    code = sources.version(Path(file), module, kernel.code_files().values())
    if module.startswith(PREFIX):
        return found | {"plugin": code}
    name, number = _packages.get(module, (module, ""))
    return found | {name: f"{number}+{code}" if sources.is_users(Path(file)) else number}


def choices(asked: str | Kernel | type[Kernel]) -> list[Kernel]:
    """The concrete kernels that a label may mean, or a kernel itself, best first."""
    kernel = get(asked) if isinstance(asked, str) else _instance(asked)
    if kernel.variant or not kernel.variants:
        return [kernel]
    return [type(kernel)(variant) for variant in kernel.variants]


def _instance(asked: Kernel | type[Kernel]) -> Kernel:
    if isinstance(asked, Kernel):
        return asked
    _refuse_incomplete(asked, asked.__module__)
    return asked("")


def refuse_no_kernel(asked: object) -> None:
    """For user code, which may hand over anything."""
    if not isinstance(asked, str | Kernel) and not (isinstance(asked, type) and issubclass(asked, Kernel)):
        kinds = "a name such as 'sdpa', a function decorated with @longca.kernel, or a class derived from longca.Kernel or an object of one"
        raise BadInput(f"kernel must be {kinds}, not {asked!r}.")


def choose(label: str | Kernel | type[Kernel], mask: AnyMask, case: Case) -> Kernel:
    """The kernel to run: the asked-for variant, or the first that can do this mask. Never another kernel."""
    missing, refused = dict[str, list[str]](), list[str]()
    kernels = choices(label)
    for kernel in kernels:
        if isinstance(answer := available(kernel, case.device), No):
            missing.setdefault(answer.reason, []).append(kernel.label)
        elif isinstance(answer := supports(kernel, mask, case), No):
            refused.append(f"{kernel.label} {answer.reason}")
        else:
            return kernel
    if refused:
        raise Refused(f"{'; '.join(refused)}.")
    one = len(missing) == 1  # for all variants: it is said once
    reasons = [reason if one else f"{', '.join(labels)}: {reason}" for reason, labels in missing.items()]
    raise Unavailable(f"{label if isinstance(label, str) else kernels[0].name} is not available here ({'; '.join(reasons)}).")


def supports(kernel: Kernel, mask: AnyMask, case: Case) -> Answer:
    """What the kernel answers, after the rules that hold for all of them."""
    if case.partial_backward and kernel.backward != "functional":
        return No("cannot start its backward from another call's out and lse, as a ring needs")
    if case.backward and kernel.backward == "none":
        return No("has no backward")
    answer: object = kernel.supports(mask, case)
    if isinstance(answer, Yes | No):
        return answer
    raise BadInput(f"the supports() of {kernel.label} returns {answer!r}; it must return longca.Yes() or longca.No('why not').")


def prepare(kernel: Kernel, mask: AnyMask, case: Case) -> Attention:
    """The kernel made ready; what it gives must be something to call."""
    prepared: object = kernel.prepare(mask, case)
    if callable(getattr(prepared, "forward", None)):
        return cast(Attention, prepared)
    raise BadInput(f"the prepare() of {kernel.label} returns {prepared!r}; it must return a longca.Attention, an object with a forward.")
