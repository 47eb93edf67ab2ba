"""Sinks and softcap over many ranks: added once after the merge, whatever the method."""

from __future__ import annotations

from dataclasses import replace

import pytest

from longca.errors import Refused
from longca.parallel import registry
from parallel.running import STATIC, assert_right, case_of, mask_of, plan_if_taken, plan_of, reference, run_local

GRIDS = {"usp": "2x2", "loongtrain": "1x4x2", "burst": "1x4x2", "mesh": "2x2"}


@pytest.mark.parametrize(("method", "options"), [*((method, {}) for method in STATIC), ("magi", {"node": 2})])
@pytest.mark.parametrize(("name", "softcap"), [("causal_document", 2.0), ("sliding_window_causal", 0.0), ("share_question", 2.0)])
def test_every_method_gives_what_one_rank_gives(method: str, options: dict[str, int], softcap: float, name: str) -> None:
    mask = mask_of(name)
    case = replace(case_of(mask.seqlen_q, dtype="fp64"), softcap=softcap, sinks=True)
    plan = plan_if_taken(method, mask, case, 4, GRIDS.get(method, ""), options=options)
    if plan is not None:
        assert_right(run_local(plan), reference(mask, case), tolerance=1e-9)


@pytest.mark.parametrize("method", STATIC)
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
