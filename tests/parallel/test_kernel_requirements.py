"""What a kernel is asked about a plan without a device: the plans that it refuses are those that ranks refuse when they prepare it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longca import masks
from longca.errors import Refused
from longca.kernels import registry as kernels
from longca.kernels.base import Answer, Attention, Case, Kernel, No, Yes
from longca.kernels.shared import documents_of
from longca.masks import AnyMask
from longca.parallel import registry
from longca.parallel.comm.local import World
from longca.parallel.kernel_requirements import refuse_calls
from longca.parallel.method import Plan
from longca.parallel.recording import record
from parallel.running import case_of, mask_of, plan_if_taken, plan_of

RANKS = 4
OTHERS = ("full", "sliding_window_causal", "share_question", "prefix_lm_causal")


class Documents(Kernel):
    """As FlashAttention: documents in a row with one window for all, and no other mask."""

    name = "documents"
    devices = ("cpu", "cuda")

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        answer = documents_of(mask)
        return answer if isinstance(answer, No) else Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return kernels.get("torch:chunked").prepare(mask, case)


def refusal_without_a_device(plan: Plan) -> str:
    try:
        refuse_calls(plan, [event.call for rank in range(plan.ranks) for event in record(plan, rank).forward if event.call is not None])
    except Refused as refused:
        return str(refused)
    return ""


def refusal_of_ranks(plan: Plan) -> str:
    """Kernels are prepared when the programs are made."""
    try:
        for comm in World(plan.ranks).comms():
            plan.program(comm)
    except Refused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("name", ["causal", "causal_document", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
@pytest.mark.parametrize("method", registry.names())
def test_a_plan_is_refused_where_ranks_refuse_it(method: str, name: str) -> None:
    with kernels.lent([Documents]):
        plan = plan_if_taken(method, mask_of(name), case_of(197, (8, 4)), RANKS, kernel="documents")
        if plan is None:
            pytest.skip(f"{method} does not take {name}")
        expected, refusal = refusal_of_ranks(plan), refusal_without_a_device(plan)
        assert bool(refusal) == bool(expected)
        assert expected.rstrip(".") in refusal


def test_the_parts_of_a_mask_decide() -> None:
    """Each step of a causal ring is causal or full. The gathered keys of a rank with the first and the last rows are not."""
    with kernels.lent([Documents]):
        mask, case = masks.causal(64), case_of(64)
        ring, gathered = (plan_of(method, mask, case, RANKS, kernel="documents") for method in ("ring_p2p", "ring_allgather"))
        assert not refusal_without_a_device(ring)
        refusal = refusal_without_a_device(gathered)
        assert "the kernel documents for a part of the mask, 16 queries and 64 keys: documents cannot take this mask: " in refusal


def test_neither_package_nor_device_need_be_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "available", lambda kernel, device: pytest.fail("this machine was asked"))
    case = case_of(256, (8, 2), "bf16", 128, device="cuda")
    for kernel in ("fa3", "fa4", "best"):
        assert not refusal_without_a_device(plan_of("ulysses", masks.causal(256), case, 2, kernel=kernel))
    share_question = masks.share_question(256, documents=[100, 56, 100])
    assert "fa3 cannot take this mask" in refusal_without_a_device(plan_of("ulysses", share_question, case, 2, kernel="fa3"))
    on_cpu = plan_of("ulysses", masks.causal(256), case_of(256, (8, 2)), 2, kernel="fa3")
    assert "fa3 runs on cuda only" in refusal_without_a_device(on_cpu)


def test_the_kernel_that_is_named_instead_can_do_it() -> None:
    blocks = masks.uniform_block(1024, ratio=0.5, b=128, heads=2, seed=0)
    case = case_of(1024, (8, 2), "bf16", 128, device="cuda")
    refusal = refusal_without_a_device(plan_of("ulysses", blocks, case, 2, kernel="fa3"))
    assert "fa3 takes masks made of bands, not block patterns" in refusal
    other = refusal.partition("use another kernel such as ")[2].rstrip(".")
    assert not refusal_without_a_device(plan_of("ulysses", blocks, case, 2, kernel=other))


def test_a_kernel_that_returns_its_own_buffer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without a backward: what it returned is merged, or kept by the caller, after its next call."""
    monkeypatch.setattr(Documents, "returns_own_buffer", True)
    forward = replace(case_of(64), backward=False, partial_backward=False)
    with kernels.lent([Documents]):
        for method in registry.names():
            if not registry.get(method).takes_blocks_alone:
                with pytest.raises(Refused, match=f"{method} cannot use the kernel documents: documents returns its own buffer"):
                    plan_of(method, masks.sliding_window_causal(64, w=4), forward, 2, kernel="documents")
