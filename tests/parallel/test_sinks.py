"""Sinks and softcap over many ranks: added once after the merge, whatever the method."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longca.errors import Refused
from longca.kernels import inputs
from longca.kernels import registry as kernels
from longca.parallel import registry
from longca.parallel.comm.local import World
from longca.parallel.primitives.program import whole_heads
from parallel.running import case_of, mask_of, plain_inputs, plan_if_taken, plan_of

METHODS = [
    ("ulysses", ""),
    ("ring_p2p", ""),
    ("ring_allgather", ""),
    ("usp", "2x2"),
    ("loongtrain", "1x4x2"),
    ("magi", ""),
    ("hybrid_dcp", ""),
    ("halo", ""),
    ("burst", "1x4x2"),
    ("mesh", "2x2"),
]


@pytest.mark.parametrize(("method", "grid"), METHODS)
@pytest.mark.parametrize(("name", "softcap"), [("causal_document", 2.0), ("sliding_window_causal", 0.0), ("share_question", 2.0)])
def test_every_method_gives_what_one_rank_gives(method: str, grid: str, softcap: float, name: str) -> None:
    mask = mask_of(name)
    case = replace(case_of(mask.seqlen_q, dtype="fp64"), softcap=softcap, sinks=True)
    whole = inputs.make(case)
    sinks = whole.sinks
    assert sinks is not None
    attention = kernels.get("torch:chunked").prepare(mask, case)
    out, lse = attention.forward_with_sinks(*whole[:3], sinks)
    right = attention.backward_with_sinks(whole.dout, *whole[:3], out, lse, sinks)
    plan = plan_if_taken(method, mask, case, 4, grid)
    if plan is None:
        return
    world = World(plan.ranks, "cpu")
    programs = [plan.program(comm) for comm in world.comms()]

    def run(rank: int) -> tuple[torch.Tensor, ...]:
        q, k, v, dout = plain_inputs(case, [(int(first), int(last)) for first, last in plan.rows(rank)], "LHD")
        program = programs[rank]
        mine, kept = program.forward(q, k, v, sinks)
        own_lse = program.own_lse(kept)
        assert own_lse is not None
        *gradients, dsinks = program.backward(dout, kept)
        return mine, own_lse, *gradients, whole_heads(program, dsinks, sinks)

    parts = world.run(run)
    assert lse is not None
    for rank, part in enumerate(parts):
        own = torch.cat([torch.arange(int(first), int(last)) for first, last in plan.rows(rank)])
        torch.testing.assert_close(part[:5], (out[own], lse[:, own], *(gradient[own] for gradient in right[:3])))
    torch.testing.assert_close(sum(part[5] for part in parts), right[3])


@pytest.mark.parametrize("method", [method for method, _ in METHODS])
def test_own_methods_take_sinks_and_others_must_say_so(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert registry.get(method).takes_sinks
    monkeypatch.setattr(registry.classes()[method], "takes_sinks", False)
    case = replace(case_of(64), sinks=True)
    with pytest.raises(Refused, match="its programs do not take attention sinks"):
        plan_of(method, mask_of("causal", 64), case, 2)


def test_a_kernel_without_lse_cannot_serve_sinks() -> None:
    case = replace(case_of(64), sinks=True)
    with pytest.raises(Refused, match="sdpa:math gives no lse, without which attention sinks cannot be added; use another kernel such as"):
        plan_of("ulysses", mask_of("causal", 64), case, 2, kernel="sdpa:math")
