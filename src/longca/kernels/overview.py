"""Which kernel runs here, and which mask each can do: what `longca ls kernels` shows. Needs no torch and no GPU."""

from __future__ import annotations

from typing import Any, NamedTuple

from longca import devices, masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Kernel, No, Yes

SAMPLE, HEADS_KV = 8192, 8


def overview() -> list[dict[str, Any]]:
    """One entry per kernel and variant: what it is, whether it runs here, and its answer for each mask."""
    device = devices.kind()
    samples = [[Sample(masks.build(name, SAMPLE, seed=42))] for name in masks.names()]
    samples += [_blocks(name) for name in masks.block_names()]
    kernels = [registry.get(label) for name in registry.names() for label in registry.labels(name)]
    return [_entry(kernel, device, samples) for kernel in kernels] + [_broken(name, why) for name, why in registry.broken.items()]


class Sample(NamedTuple):
    """A mask to ask about, with how many query heads, and what is special about asking that way."""

    mask: masks.AnyMask
    heads_q: int = 64
    note: str = ""


def _blocks(name: str) -> list[Sample]:
    """Block patterns are asked about in several forms: many kernels know one size of blocks, or no grouped heads."""
    usual = masks.build(name, SAMPLE, seed=42, heads=HEADS_KV)
    asked = [Sample(usual), Sample(usual, HEADS_KV, "as many KV heads as query heads")]
    if "b" in usual.params:
        wide = masks.build(name, SAMPLE, seed=42, heads=HEADS_KV, b=128)
        asked.insert(1, Sample(wide, note="blocks of 128"))
    return asked


def _broken(name: str, why: str) -> dict[str, Any]:
    unknown = dict.fromkeys(("needs", "backward", "gqa", "tested", "about"), "")
    return {"kernel": name, "available": False, "here": why, **unknown, "masks": {}}


def _entry(kernel: Kernel, device: str, samples: list[list[Sample]]) -> dict[str, Any]:
    available = registry.available(kernel, device)
    home = device if device in kernel.devices else kernel.devices[0]
    answers = {asked[0].mask.name: _answer(kernel, asked, home) for asked in samples}
    return {
        "kernel": kernel.label,
        "available": bool(available),
        "here": "available" if available else available.reason if isinstance(available, No) else "",
        "needs": kernel.needs,
        "backward": kernel.backward,
        "gqa": kernel.gqa,
        "tested": _tested(kernel),
        "about": kernel.about,
        "masks": answers,
    }


def _tested(kernel: Kernel) -> str:
    if kernel.tested or registry.is_ours(kernel):
        return kernel.tested or "untested: written from documentation"
    file = registry.file_of(kernel)
    return f"yours: `longca verify {f'--plugin {file}' if file else f'--kernels {kernel.label}'}` checks it"


def _answer(kernel: Kernel, asked: list[Sample], device: str) -> dict[str, str]:
    """What the kernel says of a mask on the device it is made for; forward alone where it has no backward there in any form."""
    dtype, reasons = "bf16" if device == "cuda" else "fp32", list[str]()
    for backward in (True, False):
        for mask, heads_q, special in asked:
            case = Case(SAMPLE, SAMPLE, heads_q, HEADS_KV, 128, 128, dtype, device, backward=backward)
            try:
                answer = registry.supports(kernel, mask, case)
            except Exception as error:  # of a user's kernel: it is no answer, and takes no other kernel's away
                answer = No(str(error) if isinstance(error, LongcaError) else f"supports() fails: {type(error).__name__}: {error}")
            if isinstance(answer, Yes):
                notes = [answer.note, special, "forward only" * (not backward), "memory for every pair" * answer.quadratic]
                return {"answer": answer.how, "note": "; ".join(note for note in notes if note)}
            reasons.append(answer.reason)
    return {"answer": "no", "note": reasons[len(asked)]}
