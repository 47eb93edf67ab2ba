"""Which kernel runs here, and which mask each can do: what `longca ls kernels` shows. Needs no torch and no GPU."""

from __future__ import annotations

from typing import Any

from longca import devices, masks
from longca.kernels import registry
from longca.kernels.base import Case, Kernel, No, Yes

SAMPLE, HEADS_KV = 8192, 8


def overview() -> list[dict[str, Any]]:
    """One entry per kernel and variant: what it is, whether it runs here, and its answer for each mask."""
    device = devices.kind()
    samples: list[masks.AnyMask] = [masks.build(name, SAMPLE, seed=42) for name in masks.names()]
    samples += [masks.build(name, SAMPLE, seed=42, heads=HEADS_KV) for name in masks.block_names()]
    kernels = [registry.get(label) for name in registry.names() for label in registry.labels(name)]
    return [_entry(kernel, device, samples) for kernel in kernels] + [_broken(name, why) for name, why in registry.broken.items()]


def _broken(name: str, why: str) -> dict[str, Any]:
    unknown = dict.fromkeys(("needs", "backward", "gqa", "tested", "about"), "")
    return {"kernel": name, "available": False, "here": why, **unknown, "masks": {}}


def _entry(kernel: Kernel, device: str, samples: list[Any]) -> dict[str, Any]:
    available = registry.available(kernel, device)
    home = device if device in kernel.devices else kernel.devices[0]
    answers = {mask.name: _answer(kernel, mask, home) for mask in samples}
    return {
        "kernel": kernel.label,
        "available": bool(available),
        "here": "available" if available else available.reason if isinstance(available, No) else "",
        "needs": kernel.needs,
        "backward": kernel.backward,
        "gqa": kernel.gqa,
        "tested": kernel.tested or "untested: written from documentation",
        "about": kernel.about,
        "masks": answers,
    }


def _answer(kernel: Kernel, mask: Any, device: str) -> dict[str, str]:
    """What the kernel says of a mask on the device it is made for; forward alone where it has no backward there."""
    dtype = "bf16" if device == "cuda" else "fp32"
    for backward in (True, False):
        case = Case(SAMPLE, SAMPLE, 64, HEADS_KV, 128, 128, dtype, device, backward=backward)
        answer = registry.supports(kernel, mask, case)
        if isinstance(answer, Yes):
            notes = [answer.note, "forward only" * (not backward), "memory for every pair" * answer.quadratic]
            return {"answer": answer.how, "note": "; ".join(note for note in notes if note)}
        reason = answer.reason
    return {"answer": "no", "note": reason}
