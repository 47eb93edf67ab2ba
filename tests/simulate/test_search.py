"""The search for the best method: it leaves out only what cannot win."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

import longca
from longca import masks
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.methods.ring_p2p import RingP2P
from longca.results.problem import Pass
from longca.simulate.bounds import bound_of, quick_bound
from longca.simulate.cluster import find
from longca.simulate.predict import predict
from longca.simulate.programs import Programs
from parallel.running import STATIC

_, CLUSTER = find("h100-ib")
PASSES = (Pass.FWD, Pass.BWD, Pass.BOTH)


@pytest.mark.parametrize("heads", [(64, 8), (64, 64)], ids=str)  # with as many KV heads, burst passes queries round
@pytest.mark.parametrize("mask", ["causal", "causal_document", "sliding_window_causal"])
def test_bounds_are_no_more_than_the_time(mask: str, heads: tuple[int, int]) -> None:
    """Roughly without a recording, and of the recorded rank; for a ring, the first is a good part of the second."""
    shown = masks.build(mask, 65536, seed=1)
    for method in STATIC:
        if (method, mask) == ("halo", "causal"):
            continue  # it takes no mask that sees all keys
        plan = registry.plan(method, shown, Case(65536, 65536, *heads, 128, 128, "bf16", "cuda"), 8, kernel="fa4")
        quick, bound, programs = quick_bound(plan, CLUSTER, PASSES), bound_of(plan, CLUSTER).ms, Programs.of(plan)
        for pass_ in PASSES:
            assert quick[pass_] <= bound[pass_] * (1 + 1e-9) <= predict(programs, CLUSTER, pass_).ms * (1 + 2e-9), (method, pass_)
        if method == "ring_p2p":
            assert quick[Pass.BOTH] > 0.1 * bound[Pass.BOTH]


def test_the_best_of_a_search_is_the_best_of_all() -> None:
    common: dict[str, Any] = {"cluster": "h100-ib", "gpus": 16, "seqlens": "64K", "passes": "fwd+bwd", "seeds": "1,", "progress": False}
    common |= {"masks": "causal_document", "methods": "usp,ring_p2p,magi,burst,mesh"}
    searched = longca.simulate(**common, best=True).rows
    times = {(row["method"], row["grid"], row["options"]): row["ms"] for row in searched if row.get("ms")}
    assert len(times) < len(searched)
    for row in longca.simulate(**common).rows:
        known = times.get((row["method"], row["grid"], row["options"]))
        assert known == row["ms"] if known is not None else row["ms"] >= min(times.values())


def test_nothing_is_known_of_the_rings_of_plugins() -> None:
    class Own(RingP2P):
        """A method of a user: what it computes in a step is its own."""

    plan = registry.plan("ring_p2p", masks.build("causal", 8192), Case(8192, 8192, 8, 8, 64, 64, "bf16", "cuda"), 8, kernel="fa4")
    assert quick_bound(plan, CLUSTER, PASSES)[Pass.FWD] > 0
    assert not any(quick_bound(replace(plan, method=Own()), CLUSTER, PASSES).values())


def test_ranks_may_be_faster_than_usual() -> None:
    fast = structs.replace(CLUSTER, slow={"0-7": 0.4})
    plan = registry.plan("ring_p2p", masks.build("full", 65536), Case(65536, 65536, 64, 8, 128, 128, "bf16", "cuda"), 8, kernel="fa4")
    assert 0 < quick_bound(plan, fast, PASSES)[Pass.FWD] <= predict(Programs.of(plan), fast, Pass.FWD).ms
