"""The list of kernels: those of `backends/`, of plugin files and of installed entry points. Nothing here imports torch."""

from __future__ import annotations

import importlib
import math
import os
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from longca import code_version, devices
from longca.errors import BadInput, LongcaError, Refused, Unavailable, unknown
from longca.kernels import backends
from longca.kernels.base import Answer, Case, CompileCache, Kernel, No, Prepared, Yes, refuse_declared
from longca.kernels.plugin import arch_name, refuse_settings
from longca.masks import AnyMask
from longca.masks.own import of_module
from longca.plugins import (
    PREFIX,
    defined_in,
    files_of,
    import_file,
    nameless_in,
    refuse_odd_name,
    refuse_same_names,
    refuse_taken,
    refuse_twice,
)
from longca.text import plural

_plugins: dict[str, type[Kernel]] = {}
_lent: dict[str, Kernel | type[Kernel]] = {}  # kernels that a caller of the Python API gave as objects, while it runs
_packages: dict[str, tuple[str, str]] = {}  # by module: name and version of the installed package that offers a kernel
broken: dict[str, str] = {}  # by entry point: why an installed kernel cannot be loaded


@cache
def _own() -> dict[str, type[Kernel]]:
    """Returns the kernels of LongCA: every module below `backends/` whose name does not begin with an underscore is searched."""
    own: dict[str, type[Kernel]] = {}
    for module in pkgutil.walk_packages(backends.__path__, f"{backends.__name__}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            own |= defined_in(importlib.import_module(module.name), Kernel)
    return own


@cache
def _installed() -> dict[str, type[Kernel]]:
    """Returns the kernels of installed packages, and lists in `broken` those that cannot be loaded."""
    installed: dict[str, type[Kernel]] = {}
    for entry in entry_points(group="longca.kernels"):
        try:
            with code_version.recording_imports(entry.value.partition(":")[0]):
                offered = defined_in(entry.load(), Kernel)
            for kernel in offered.values():
                _refuse_incomplete(kernel, entry.value)
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
        _refuse_borrowed(module, path)
        raise BadInput(
            f"the plugin {path} has no kernel: write a class derived from longca.Kernel, or decorate a function with @longca.kernel "
            "(or with @longca.mask for a mask)."
        )
    for kernel in defined.values():
        _refuse_incomplete(kernel, path)
    refuse_taken(defined, _own(), path, "kernel")
    refuse_twice(defined, files_of(_plugins), path, "kernel")
    _plugins.update(defined)
    return list(defined)


def _refuse_borrowed(module: ModuleType, path: str | Path) -> None:
    """Raises BadInput where the kernels of a plugin, or the functions that they are made of, are only imported from another module."""
    for name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Kernel) and not value.__abstractmethods__:
            here = "write a class that derives from it, or a decorated function that calls it, into this one"
            raise BadInput(f"the kernel {name} of the plugin {path} is from the module {value.__module__}; {here}.")


def _refuse_incomplete(kernel: type[Kernel], path: str | Path) -> None:
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


@contextmanager
def lent(kernels: Iterable[Kernel | type[Kernel]]) -> Iterator[None]:
    """Makes kernels known by their names for a while; a later definition of a name replaces an earlier one."""
    before = dict(_lent)
    for kernel in kernels:
        defined = type(kernel) if isinstance(kernel, Kernel) else kernel
        _refuse_incomplete(defined, defined.__module__)
        if defined.name in _own() and not is_ours(defined("")):
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
    return {**_own(), **_installed(), **_plugins, **given}


def names() -> list[str]:
    return sorted(classes())


def compared_names() -> list[str]:
    """Returns the names of `all`: without kernels that only choose between the others."""
    return sorted(name for name, kernel in classes().items() if not kernel.chooses)


def labels(name: str) -> list[str]:
    """Returns the names of a kernel's variants as name:variant; the bare name where it has none."""
    variants = classes()[name].variants
    return [f"{name}:{variant}" for variant in variants] or [name]


def available_labels(device: str) -> list[str]:
    """Returns the labels of all variants of all kernels that this machine can run: what `all` means."""
    return [label for name in compared_names() for label in labels(name) if available(get(label), device)]


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


def file_of(kernel: Kernel) -> str:
    """Returns the plugin file that defines a kernel; empty for kernels of LongCA and of installed packages."""
    module = type(kernel).__module__
    return os.path.relpath(str(sys.modules[module].__file__)) if module.startswith(PREFIX) else ""


def is_ours(kernel: Kernel) -> bool:
    """Whether a kernel is part of LongCA."""
    return type(kernel) in _own().values()


def runs_on(kernel: Kernel, device: str) -> Answer:
    """Whether it is made for this kind of device, whatever this machine has."""
    if device in kernel.devices:
        return Yes()
    return No(f"runs on {' and '.join(kernel.devices)} only" + (f"; there: {kernel.getting}" if kernel.getting else ""))


def available(kernel: Kernel, device: str) -> Answer:
    """Whether its package is installed and this device can run it."""
    if isinstance(answer := runs_on(kernel, device), No):
        return answer
    missing = [module for module in kernel.modules if code_version.module_path(module) is None]
    if missing:
        return No(kernel.getting or f"needs {', '.join(missing)}")
    if device == "cuda" and not devices.gpus():
        return No("there is no GPU here")
    if device == "cuda" and (refusal := _refuse_capability(kernel)):
        return No(refusal)
    return kernel.present()


def _refuse_capability(kernel: Kernel) -> str:
    """Returns why the first GPU does not have the compute capability that a kernel needs; empty where it does."""
    least, most, present = kernel.capability, kernel.most_capability, devices.capability()
    here = f"sm{present[0]}{present[1]}"
    if kernel.archs and here not in map(arch_name, kernel.archs):
        return f"is compiled for {', '.join(kernel.archs)}, and this device is {here}"
    if least <= present and (most is None or present <= most):
        return ""
    written = {number: ".".join(map(str, number)) for number in (least, most, present) if number is not None}
    wanted = written[least] if most is None else f"{written[least]} exactly" if most == least else f"{written[least]} to {written[most]}"
    return f"needs compute capability {wanted}, this device has {written[present]}"


def versions(kernel: Kernel) -> dict[str, str]:
    """Returns the versions that a kernel's times depend on: those of its packages, of the installed package that offers it, and under
    "code" the version of its own code (see `code_version`)."""
    if _lent.get(kernel.name) in (kernel, type(kernel)):
        return kernel.versions() | {"code": f"object {uuid4().hex}"}  # its code may have changed since any earlier call
    module = type(kernel).__module__
    numbers, file = kernel.versions(), getattr(sys.modules.get(module), "__file__", None)
    if module in _packages:
        name, number = _packages[module]
        numbers[name] = number
    libraries = () if is_ours(kernel) else kernel.code_files().values()
    return numbers | {"code": code_version.of_module(Path(file), module, kernel.own_paths(), libraries) if file else ""}


def preferred(device: str) -> list[Kernel]:
    """Returns the kernels that `best` may choose on a device, the first to try first."""
    instances = [kernel for name in names() for kernel in choices(name)]
    places = [(place, kernel) for kernel in instances if (place := getattr(kernel.preference, device, None)) is not None]
    return [kernel for _, kernel in sorted(places, key=lambda entry: entry[0])]


def default_for_methods(device: str) -> str:
    """Returns the label of the kernel that context parallel methods use by default on a device: it serves all of them."""
    labels_of_own = [label for name in _own() for label in dict.fromkeys((name, *labels(name)))]
    return next(label for label in labels_of_own if device in get(label).default_for_methods)


def compile_caches() -> dict[str, CompileCache]:
    """Returns, by kernel, the variables of libraries that keep compiled code on disk only on request."""
    return {name: kernel.compile_cache for name, kernel in classes().items() if kernel.compile_cache}


def choices(asked: str | Kernel | type[Kernel]) -> list[Kernel]:
    """Returns the variants that a label, a class or an instance may stand for, best first."""
    if isinstance(asked, str) and is_file(asked):
        asked = _only_kernel(asked)
    kernel = get(asked) if isinstance(asked, str) else _instance(asked)
    if kernel.variant or not kernel.variants:
        return [kernel]
    return [type(kernel)(variant) for variant in kernel.variants]


def is_file(asked: str) -> bool:
    """Whether a text stands for a plugin file, and not for the name of a kernel."""
    return asked.endswith(".py") or "/" in asked


@cache  # a process runs what it imported, and not a later edit
def _only_kernel(path: str) -> str:
    """Returns the name of a plugin file's only kernel."""
    names = load_plugin(path)
    if len(names) != 1:
        raise BadInput(f"{path} has {plural(len(names), 'kernel')}{': ' if names else ''}{', '.join(names)}; give the name of one.")
    return names[0]


def _instance(asked: Kernel | type[Kernel]) -> Kernel:
    if isinstance(asked, Kernel):
        return asked
    _refuse_incomplete(asked, asked.__module__)
    return asked("")


def refuse_no_kernel(asked: object) -> None:
    """Raises BadInput for what is neither a name, a kernel class nor an instance of one."""
    if not isinstance(asked, str | Kernel) and not (isinstance(asked, type) and issubclass(asked, Kernel)):
        kinds = "a name such as 'sdpa', a plugin file, a function decorated with @longca.kernel, or a class or object of longca.Kernel"
        raise BadInput(f"kernel must be {kinds}, not {asked!r}.")


def choose(label: str | Kernel | type[Kernel], mask: AnyMask, case: Case) -> Kernel:
    """Returns the kernel to run: the variant asked for, or the first that can do this mask. It never returns another kernel."""
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
    alike = len(missing) == 1  # one reason for all variants is given once
    reasons = [reason if alike else f"{', '.join(labels)}: {reason}" for reason, labels in missing.items()]
    raise Unavailable(f"{label if isinstance(label, str) else kernels[0].name} is not available here ({'; '.join(reasons)}).")


def supports(kernel: Kernel, mask: AnyMask, case: Case) -> Answer:
    """Returns the kernel's answer, after the rules that hold for all kernels."""
    if not kernel.takes_empty and 0 in (mask.seqlen_q, mask.seqlen_k):
        return No(f"needs at least one query and one key, not {mask.seqlen_q} and {mask.seqlen_k}")
    if not math.isfinite(case.scale):
        return No(f"needs a finite softmax scale, not {case.scale}")
    if case.scale < 0 and not kernel.takes_negative_scale:
        return No(f"needs a positive softmax scale, not {case.scale}")
    if (refusal := refuse_declared(kernel, case)) is not None or (refusal := _refuse_softcap_and_sinks(kernel, case)) is not None:
        return refusal
    if case.partial_backward and kernel.backward != "functional":
        return No("cannot start its backward from another call's out and lse, as a ring needs")
    if case.backward and kernel.backward == "none":
        return No("has no backward")
    answer: object = kernel.supports(mask, case)
    if isinstance(answer, Yes | No):
        return answer
    raise BadInput(f"the supports() of {kernel.label} returns {answer!r}; it must return longca.Yes() or longca.No('why not').")


def _refuse_softcap_and_sinks(kernel: Kernel, case: Case) -> No | None:
    """Returns the refusal of a softcap or of sinks; a kernel that does not declare that it can do them is never run with them."""
    if not (math.isfinite(case.softcap) and case.softcap >= 0):
        return No(f"needs a softcap of 0 or more, not {case.softcap}")
    if case.softcap and not kernel.takes_softcap:
        return No("cannot cap scores (softcap)")
    if case.sinks and kernel.sink_support == "no":
        return No("cannot do attention sinks")
    if case.sinks and kernel.sink_support == "after" and not kernel.lse_in(case):
        return No(f"gives no lse on {case.device}, without which attention sinks cannot be added")
    return None


def prepare(kernel: Kernel, mask: AnyMask, case: Case) -> Prepared:
    """Returns the kernel that runs with its attention, and raises BadInput where that has no forward."""
    prepared = kernel.prepared(mask, case)
    if callable(getattr(prepared.attention, "forward", None)):
        return prepared
    gave = repr(prepared.attention)
    raise BadInput(f"the prepare() of {kernel.label} returns {gave}; it must return a longca.Attention, an object with a forward.")
