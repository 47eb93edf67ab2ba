"""What makes FA4 compile once more, found out without FA4: it is compiled ahead once for each kind of kernel, and for no length or mask."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import pytest
import torch

from longca import masks
from longca.kernels.backends.fa4 import kernel as fa4
from longca.kernels.base import Attention, Case

CASE = Case(4096, 4096, 8, 2, 128, 128, "bf16", "cuda")


class Lists(NamedTuple):
    count: torch.Tensor
    index: torch.Tensor | None = None
    block_size: tuple[int, int] | None = None


class PackedLists(Lists):
    __slots__ = ()


class MaskFunction:
    def __init__(self, name: str) -> None:
        self.__cute_hash__ = name


class Lowered(Attention):
    """Holds what the adapters hold: options of the library's functions."""

    def __init__(self, **options: Any) -> None:
        self.case, self.max_q, self.options = CASE, options.pop("max_q", 0), options

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        raise NotImplementedError


def compiled(monkeypatch: pytest.MonkeyPatch, prepared: list[tuple[dict[str, Any], Case]]) -> int:
    """How often preparing these one after the other compiles."""
    calls: list[Attention] = []
    options = iter([options for options, _ in prepared])
    monkeypatch.setattr(fa4, "_COMPILED", set())
    monkeypatch.setattr(fa4, "compile_ahead", lambda attention, case: calls.append(attention))
    monkeypatch.setattr(fa4.Fa4, "_lowered", lambda self, mask, case: Lowered(**next(options)))
    for _, case in prepared:
        fa4.Fa4("bands").prepare(masks.causal(4096), case)
    return len(calls)


BOUNDS, COUNT = torch.zeros(2, 8), torch.zeros(3)


@pytest.mark.parametrize(
    ("one", "other", "times"),
    [
        ({"window_size_left": 7}, {"window_size_left": 100}, 1),  # a number for the kernel
        ({"max_q": 10, "max_seqlen_q": 10}, {"max_q": 99, "max_seqlen_q": 99}, 1),
        ({"softmax_scale": 0.1}, {"softmax_scale": 0.2}, 1),
        ({"lists": Lists(COUNT, BOUNDS)}, {"lists": Lists(BOUNDS, COUNT)}, 1),
        ({"window_size_left": 7}, {"window_size_left": None}, 2),
        ({"causal": True}, {"causal": False}, 2),
        ({"aux_tensors": [BOUNDS]}, {"aux_tensors": [BOUNDS, BOUNDS]}, 2),  # where keys fill their last tile
        ({"mask_mod": MaskFunction("one interval")}, {"mask_mod": MaskFunction("two intervals")}, 2),
        ({"lists": Lists(COUNT, COUNT, (128, 128))}, {"lists": Lists(COUNT, COUNT, (64, 128))}, 2),
        ({"lists": Lists(COUNT, COUNT)}, {"lists": Lists(COUNT, None)}, 2),
        ({"lists": Lists(COUNT)}, {"lists": PackedLists(COUNT)}, 2),
        ({"tile_mn": (128, 128)}, {"tile_mn": (128, 80)}, 2),
    ],
)
def test_another_kernel_compiles_again_and_another_number_or_length_does_not(
    one: dict[str, Any], other: dict[str, Any], times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compiled(monkeypatch, [(one, CASE), (other, CASE), (one, replace(CASE, seqlen_q=9999, seqlen_k=777))]) == times


def test_other_heads_and_a_single_tile_are_kernels_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [CASE, replace(CASE, heads_q=4), replace(CASE, seqlen_k=100), replace(CASE, seqlen_q=60), replace(CASE, dtype="fp16")]
    assert compiled(monkeypatch, [({}, case) for case in cases]) == len(cases)
