"""Which kernels can serve a method: rings merge partial results, and start a backward from the out and lse of all steps. A kernel must also
support each attention call of the method's ranks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Answer, Case, Kernel, Yes

if TYPE_CHECKING:
    from longca.masks import AnyMask
    from longca.parallel.comm.base import AttentionCall
    from longca.parallel.method import Method, Plan

FRAMEWORK = True


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
    if kernel.returns_own_buffer:
        return f"{kernel.label} returns its own buffer, which its next call overwrites; use {other}"
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


def refuse_calls(plan: Plan, calls: Iterable[AttentionCall]) -> None:
    """Raises Refused where the kernel of a plan cannot do one of these calls on the plan's kind of device, with the kernel's own reason.
    Neither the kernel's package nor such a device need be here."""
    whole, supported = replace(plan.case, sinks=False), set[tuple[str, Case]]()
    for call in calls:
        mask = call.make_mask()
        case = replace(whole, seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k, heads_q=call.heads_q, heads_kv=call.heads_kv)
        if (mask.digest, case) in supported:
            continue
        if refusal := _refusal(plan.kernel, mask, case):
            of_part = _refusal(plan.kernel, plan.mask, whole) != refusal
            part = f" for a part of the mask, {mask.seqlen_q} queries and {mask.seqlen_k} keys" if of_part else ""
            other = _other_kernel(plan, mask, case)
            raise Refused(f"{plan.method.name} cannot use the kernel {plan.kernel}{part}: {refusal}{other}.")
        supported.add((mask.digest, case))


def _refusal(label: str, mask: AnyMask, case: Case) -> str:
    """Returns why no kernel that the label may stand for can do a call; empty where one can."""
    kernels = registry.preferred(case.device) if registry.get(label).chooses else registry.choices(label)
    reasons = dict[str, str]()
    for kernel in reversed(kernels):  # the last ones can do the most masks
        answer = _takes(kernel, mask, case)
        if isinstance(answer, Yes):
            return ""
        reasons = {kernel.label: answer.reason} | reasons
    if len(set(reasons.values())) == 1:
        return f"{label} {next(iter(reasons.values()))}"
    return "; ".join(f"{name} {reason}" for name, reason in reasons.items())


def _other_kernel(plan: Plan, mask: AnyMask, case: Case) -> str:
    """Returns the advice to use the first kernel that can do the call and serves the method; empty where there is none."""
    for name in dict.fromkeys(kernel.name for kernel in registry.preferred(case.device)):
        chosen = next((kernel for kernel in registry.choices(name) if _takes(kernel, mask, case)), None)
        if chosen is not None and not _obstacle(plan.method, chosen, plan.mask, plan.case, plan.ranks):
            return f"; use another kernel such as {name}"
    return ""


def _takes(kernel: Kernel, mask: AnyMask, case: Case) -> Answer:
    """Returns the kernel's answer for the case's kind of device, whatever this machine has."""
    return registry.runs_on(kernel, case.device) and registry.supports(kernel, mask, case)
