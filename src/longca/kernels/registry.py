"""The kernels by name, what each says to a call on this machine, and which one runs. Nothing here imports torch."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from uuid import uuid4

from longca import code_version, devices
from longca.errors import BadInput, Refused, Unavailable
from longca.kernels.base import Answer, Case, CompileCache, Kernel, No, Prepared, Yes, refuse_declared
from longca.kernels.discovery import (
    classes,
    file_of,
    get,
    is_file,
    is_lent,
    is_ours,
    label_of,
    labels,
    lent,
    load_plugin,
    names,
    only_kernel,
    own,
    package_of,
    plugin_class,
)  # fmt: skip
from longca.kernels.plugin_checks import arch_name, refuse_incomplete
from longca.masks import AnyMask

__all__ = [
    "available", "available_labels", "choices", "choose", "classes", "compared_names", "compile_caches", "default_for_methods",
    "file_of", "get", "is_file", "is_ours", "label_of", "labels", "lent", "load_plugin", "names", "plugin_class", "preferred", "prepare",
    "refuse_no_kernel", "runs_on", "supports", "versions",
]  # fmt: skip
FRAMEWORK = True


def compared_names() -> list[str]:
    """Returns the names of `all`: without kernels that only choose between the others."""
    return sorted(name for name, kernel in classes().items() if not kernel.chooses)


def available_labels(device: str) -> list[str]:
    """Returns the labels of all variants of all kernels that this machine can run: what `all` means."""
    return [label for name in compared_names() for label in labels(name) if available(get(label), device)]


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
    numbers = dict[str, str]()
    with suppress(PackageNotFoundError):  # not installed here: the cell will say so
        numbers |= kernel.versions()
    if is_lent(kernel):
        return numbers | {"code": f"object {uuid4().hex}"}  # its code may have changed since any earlier call
    module = type(kernel).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    libraries = () if is_ours(kernel) else kernel.code_files().values()
    code = code_version.of_module(Path(file), module, kernel.own_paths(), libraries) if file else ""
    return numbers | package_of(module) | {"code": code}


def preferred(device: str) -> list[Kernel]:
    """Returns the kernels that `best` may choose on a device, the first to try first."""
    instances = [kernel for name in names() for kernel in choices(name)]
    places = [(place, kernel) for kernel in instances if (place := getattr(kernel.preference, device, None)) is not None]
    return [kernel for _, kernel in sorted(places, key=lambda entry: entry[0])]


def default_for_methods(device: str) -> str:
    """Returns the label of the kernel that context parallel methods use by default on a device: it serves all of them."""
    labels_of_own = [label for name in own() for label in dict.fromkeys((name, *labels(name)))]
    return next(label for label in labels_of_own if device in get(label).default_for_methods)


def compile_caches() -> dict[str, CompileCache]:
    """Returns, by kernel, the variables of libraries that keep compiled code on disk only on request."""
    return {name: kernel.compile_cache for name, kernel in classes().items() if kernel.compile_cache}


def choices(asked: str | Kernel | type[Kernel]) -> list[Kernel]:
    """Returns the variants that a label, a class or an instance may stand for, best first."""
    if isinstance(asked, str) and is_file(asked):
        asked = only_kernel(asked)
    kernel = get(asked) if isinstance(asked, str) else _instance(asked)
    if kernel.variant or not kernel.variants:
        return [kernel]
    return [type(kernel)(variant) for variant in kernel.variants]


def _instance(asked: Kernel | type[Kernel]) -> Kernel:
    if isinstance(asked, Kernel):
        return asked
    refuse_incomplete(asked, asked.__module__)
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
    if case.partial_backward and kernel.returns_own_buffer:
        return No("returns its own buffer, which the next step of a ring would overwrite")
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
