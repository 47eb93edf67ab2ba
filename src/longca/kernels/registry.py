"""Finding kernels: every module of this package, every plugin file, every installed entry point. None of it imports torch."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from longca import devices, kernels
from longca.errors import BadInput, Refused, Unavailable, unknown
from longca.kernels.base import Answer, Case, Kernel, No, module_path
from longca.masks import AnyMask
from longca.plugins import defined_in, import_file, refuse_taken, refuse_twice

_LIBRARIES = {"base", "inputs", "lower", "registry", "functional", "plugin", "adapting", "overview", "selected"}  # some import torch
_plugins: dict[str, type[Kernel]] = {}
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
            found |= defined_in(entry.load(), Kernel)
        except Exception as error:  # somebody else's package must not take the others down
            broken[entry.name] = f"its package fails when it is imported: {type(error).__name__}: {error}"
    return found


def load_plugin(path: str | Path) -> list[str]:
    """Take the kernels of a user's file; returns their names."""
    found = defined_in(import_file(path, "kernel"), Kernel)
    if not found:
        raise BadInput(
            f"the plugin {path} has no kernel: write a class derived from longca.Kernel, or decorate a function with @longca.kernel."
        )
    refuse_taken(found, _own(), path, "kernel")
    refuse_twice(found, _plugins, path, "kernel")
    _plugins.update(found)
    return list(found)


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


def choices(label: str) -> list[Kernel]:
    """The concrete kernels that a label may mean, best first."""
    kernel = get(label)
    if kernel.variant or not kernel.variants:
        return [kernel]
    return [type(kernel)(variant) for variant in kernel.variants]


def choose(label: str, mask: AnyMask, case: Case) -> Kernel:
    """The kernel to run: the asked-for variant, or the first that can do this mask. Never another kernel."""
    missing, refused = [], []
    for kernel in choices(label):
        if isinstance(answer := available(kernel, case.device), No):
            missing.append(f"{kernel.label}: {answer.reason}")
        elif isinstance(answer := supports(kernel, mask, case), No):
            refused.append(f"{kernel.label} {answer.reason}")
        else:
            return kernel
    if refused:
        raise Refused(f"{'; '.join(refused)}.")
    raise Unavailable(f"{label} is not available here ({'; '.join(dict.fromkeys(missing))}).")


def supports(kernel: Kernel, mask: AnyMask, case: Case) -> Answer:
    """What the kernel answers, after the rules that hold for all of them."""
    if case.partial_backward and kernel.backward != "functional":
        return No("cannot start its backward from another call's out and lse, as a ring needs")
    if case.backward and kernel.backward == "none":
        return No("has no backward")
    return kernel.supports(mask, case)
