"""The contents of `longca ls kernels`: which kernels run here, and which masks each supports. Needs neither torch nor a GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

from longca import devices, masks
from longca.errors import LongcaError
from longca.kernels import discovery, registry
from longca.kernels.base import Case, Kernel, No, Yes

FRAMEWORK = True

SAMPLE, HEADS_KV = 8192, 8


def overview() -> list[dict[str, Any]]:
    """Returns one entry per kernel and variant: its description, whether it runs here, and its answer for each mask."""
    device = devices.kind()
    samples = [[Sample(masks.build(name, SAMPLE, seed=42))] for name in masks.names()]
    samples += [_blocks(name) for name in masks.block_names()]
    kernels = [registry.get(label) for name in registry.names() for label in registry.labels(name)]
    return [_entry(kernel, device, samples) for kernel in kernels] + [_broken(name, why) for name, why in discovery.broken.items()]


class Sample(NamedTuple):
    """A mask, a number of query heads, and a note for the answer where these are not the usual ones."""

    mask: masks.AnyMask
    heads_q: int = 64
    note: str = ""


def _blocks(name: str) -> list[Sample]:
    """Returns several forms of a block pattern: many kernels take only one size of blocks, or no grouped heads."""
    usual = masks.build(name, SAMPLE, seed=42, heads=HEADS_KV)
    forms = [Sample(usual), Sample(usual, HEADS_KV, "as many KV heads as query heads")]
    if "b" in usual.params:
        wide = masks.build(name, SAMPLE, seed=42, heads=HEADS_KV, b=128)
        forms.insert(1, Sample(wide, note="blocks of 128"))
    return forms


def _broken(name: str, why: str) -> dict[str, Any]:
    """Returns the entry of an installed kernel that cannot be loaded."""
    unknown = dict.fromkeys(("needs", "backward", "gqa", "softcap", "sinks", "tested", "about"), "")
    return {"kernel": name, "available": False, "here": why, **unknown, "masks": {}}


def _entry(kernel: Kernel, device: str, samples: list[list[Sample]]) -> dict[str, Any]:
    available = registry.available(kernel, device)
    home = device if device in kernel.devices else kernel.devices[0]
    answers = {forms[0].mask.name: _answer(kernel, forms, home) for forms in samples}
    return {
        "kernel": kernel.label,
        "available": bool(available),
        "here": "available" if available else available.reason if isinstance(available, No) else "",
        "needs": kernel.needs,
        "backward": kernel.backward,
        "gqa": kernel.gqa,
        "softcap": kernel.takes_softcap,
        "sinks": kernel.sink_support,
        "tested": _tested(kernel),
        "about": kernel.about,
        "masks": answers,
    }


def _tested(kernel: Kernel) -> str:
    """Returns where a kernel passed the check, or how to check it."""
    if kernel.tested or registry.is_ours(kernel):
        return kernel.tested or f"not yet: `longca verify --kernels {kernel.label}` checks it"
    file = registry.file_of(kernel)
    return f"yours: `longca verify {f'--plugin {file}' if file else f'--kernels {kernel.label}'}` checks it"


def _answer(kernel: Kernel, forms: list[Sample], device: str) -> dict[str, str]:
    """Returns the first positive answer of a kernel for the forms of a mask; for the forward alone where no form has a backward."""
    dtype, reasons = "bf16" if device == "cuda" else "fp32", list[str]()
    for backward in (True, False):
        for mask, heads_q, special in forms:
            case = Case(SAMPLE, SAMPLE, heads_q, HEADS_KV, 128, 128, dtype, device, backward=backward)
            try:
                answer = registry.supports(kernel, mask, case)
            except Exception as error:  # an error of a user's kernel must not hide the other kernels
                answer = No(str(error) if isinstance(error, LongcaError) else f"supports() fails: {type(error).__name__}: {error}")
            if isinstance(answer, Yes):
                notes = [answer.note, special, "forward only" * (not backward), "memory for every pair" * answer.quadratic]
                return {"answer": answer.how, "note": "; ".join(note for note in notes if note)}
            reasons.append(answer.reason)
    return {"answer": "no", "note": reasons[len(forms)]}
