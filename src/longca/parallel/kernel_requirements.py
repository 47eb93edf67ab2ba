"""Which kernels can serve a method: rings merge partial results, and start a backward from the out and lse of all steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel

if TYPE_CHECKING:
    from longca.masks import AnyMask
    from longca.parallel.method import Method


def refuse_kernel(method: Method, label: str, mask: AnyMask, case: Case, ranks: int) -> None:
    """Raises Refused where no kernel that the label may stand for can serve the method, with the kernel or method that could."""
    refusals = [_obstacle(method, kernel, mask, case, ranks) for kernel in registry.choices(label)]
    if all(refusals):
        raise Refused(f"{method.name} cannot use the kernel {label}: {'; '.join(dict.fromkeys(refusals))}.")


def _obstacle(method: Method, kernel: Kernel, mask: AnyMask, case: Case, ranks: int) -> str:
    """Returns why a kernel cannot serve the method and what to use instead, as part of a sentence; empty where it can."""
    other = f"another kernel such as {registry.default_for_methods(case.device)}"
    if case.backward and kernel.backward == "none":
        return f"{kernel.label} has no backward; use the forward alone (--passes fwd), or {other}"
    if case.sinks and not kernel.lse_in(case):
        return f"{kernel.label} gives no lse, without which attention sinks cannot be added; use {other}"
    if method.merges and not kernel.lse_in(case):
        split = _splits(kernel, mask, case, ranks)
        gather = [] if case.backward and kernel.backward == "autograd" else ["ring_allgather"]
        whole = f"use {' or '.join(split + gather)}, or " if split + gather else "use "
        return f"{kernel.label} gives no lse, without which the results of several steps cannot be merged; {whole}{other}"
    if case.partial_backward and kernel.backward == "autograd":
        instead = ", ".join([*_splits(kernel, mask, case, ranks), "the forward alone (--passes fwd)"])
        return (
            f"the backward of {kernel.label} is torch's autograd, which cannot start from the out and lse of all ranks together; "
            f"use {instead}, or {other}"
        )
    return ""


def _splits(kernel: Kernel, mask: AnyMask, case: Case, ranks: int) -> list[str]:
    """Returns the method that needs no partial results where the kernel supports it: each rank of ulysses computes the whole mask."""
    if ranks > case.heads_q:
        return []
    try:
        return ["ulysses"] if registry.supports(kernel, mask, replace(case, partial_backward=False)) else []
    except Exception:  # a plugin may do anything; this is only advice
        return []
