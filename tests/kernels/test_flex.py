"""FlexAttention on a CPU: right on all masks, compiled once for all of them, and never silently eager."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
import torch

import longca
from kernels.stand_ins import checked
from longca import masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.backends.flex import _attention as flex
from longca.kernels.base import Case, No, Yes
from longca.kernels.inputs import make

CASE = Case(300, 300, 2, 1, 16, 16, "fp32", backward=False)


def test_all_masks_with_up_to_two_intervals_per_row_share_one_compilation() -> None:
    torch.set_num_threads(torch.get_num_threads())  # ranks as threads of an earlier test leave this open, and compiled code depends on it
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for name in masks.names():
        mask = masks.PATTERNS[name](300, seed=4)
        if len(mask.row_intervals()[0]) <= 2:
            checked("flex", mask, CASE)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before <= 1


def test_settings_of_torch_are_changed_around_calls_only() -> None:
    """Also where calls of several threads overlap."""
    config = ModuleType("config")
    config.limit = 8  # type: ignore[attr-defined]
    settings = flex.ChangedSettings({config: {"limit": 64}})
    with settings:
        with settings:
            assert config.limit == 64
        assert config.limit == 64
    assert config.limit == 8
    with pytest.raises(ValueError, match="inside"), settings:
        raise ValueError("inside")
    assert config.limit == 8
    before = torch._dynamo.config.cache_size_limit, torch._functorch.config.donated_buffer
    longca.attention(*make(CASE)[:3], masks.causal(300), kernel="flex")
    assert (torch._dynamo.config.cache_size_limit, torch._functorch.config.donated_buffer) == before


def test_too_many_compilations_are_an_error_and_never_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seqlen: int) -> None:
        case = Case(seqlen, seqlen, 1, 1, 16, 16, "fp32", backward=False)
        registry.get("flex").prepare(masks.causal(seqlen), case).forward(*make(case)[:3])

    monkeypatch.setattr(flex, "MOST_COMPILATIONS", 1)
    flex._compiled.cache_clear()
    torch._dynamo.reset()
    limits = {"cache_size_limit": 1, "accumulated_cache_size_limit": 1, "fail_on_recompile_limit_hit": True}
    try:
        with torch._dynamo.config.patch(limits):  # and torch's limits are as before for the tests after this one
            run(130)
            with pytest.raises(LongcaError, match="would now run uncompiled"):
                run(150)
    finally:
        flex._compiled.cache_clear()
        torch._dynamo.reset()


@pytest.mark.slow
def test_a_softcap_is_right_and_sinks_need_an_lse() -> None:
    mask = masks.sliding_window_causal(300, w=40)
    checked("flex", mask, replace(CASE, softcap=3.0))
    refusal = No("gives no lse on cpu, without which attention sinks cannot be added")
    assert registry.supports(registry.get("flex"), mask, replace(CASE, sinks=True)) == refusal


@pytest.mark.parametrize("kernel", ["flex", "fa4:bands"])
def test_more_intervals_per_row_than_can_be_compiled_are_refused_with_their_number(kernel: str) -> None:
    device = "cpu" if kernel == "flex" else "cuda"
    case = Case(1024, 1024, 2, 2, 64, 64, "bf16", device, backward=False)

    def answer(count: int) -> object:
        return registry.get(kernel).supports(masks.build("dilated_window_causal", 1024, n=count - 1, d=2), case)

    assert isinstance(answer(128), Yes)
    assert answer(129) == No("takes at most 128 intervals of keys per row, and this mask has 129")
