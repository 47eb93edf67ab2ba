"""Which kernels can serve a method: rings put partial results together, and start a backward from the out and lse of all steps."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel

if TYPE_CHECKING:
    from longca.masks import AnyMask
    from longca.parallel.method import Method

SAFE = {"cpu": "torch:chunked", "cuda": "fa4"}  # kernels that serve every method


def refuse_kernel(method: Method, label: str, mask: AnyMask, case: Case, ranks: int) -> None:
    """Raises Refused where no kernel that the label may mean can serve the method, with what would."""
    refusals = [_obstacle(method, kernel, mask, case, ranks) for kernel in registry.choices(label)]
    if all(refusals):
        raise Refused(f"{method.name} cannot use the kernel {label}: {'; '.join(dict.fromkeys(refusals))}.")


def _obstacle(method: Method, kernel: Kernel, mask: AnyMask, case: Case, ranks: int) -> str:
    """Why not and what instead, as part of a sentence; empty: it can."""
    if case.backward and kernel.backward == "none":
        return f"{kernel.label} has no backward; use the forward alone (--passes fwd), or another kernel such as {SAFE[case.device]}"
    if method.merges and not kernel.lse_in(case):
        split = _splits(kernel, mask, case, ranks)
        gather = [] if case.backward and kernel.backward == "autograd" else ["ring_allgather"]
        whole = f"use {' or '.join(split + gather)}, or " if split + gather else "use "
        return (
            f"{kernel.label} gives no lse, without which the results of several steps cannot be put together; "
            f"{whole}another kernel such as {SAFE[case.device]}"
        )
    if case.partial_backward and kernel.backward == "autograd":
        instead = ", ".join([*_splits(kernel, mask, case, ranks), "the forward alone (--passes fwd)"])
        return (
            f"the backward of {kernel.label} is torch's autograd, which cannot start from the out and lse of all ranks together; "
            f"use {instead}, or another kernel such as {SAFE[case.device]}"
        )
    return ""


def _splits(kernel: Kernel, mask: AnyMask, case: Case, ranks: int) -> list[str]:
    """The method that runs a kernel whole, where that would work: every rank of ulysses sees the whole mask."""
    if ranks > case.heads_q:
        return []
    try:
        return ["ulysses"] if registry.supports(kernel, mask, replace(case, partial_backward=False)) else []
    except Exception:  # a plugin may do anything; this is only advice
        return []
