"""sdpa on a CPU: every mask, grouped heads, unequal lengths, rows that see nothing, steps of a ring."""

from __future__ import annotations

import pytest
import torch

from kernels.stand_ins import attention, checked, gradients, small_mask
from longca import masks
from longca.kernels import registry
from longca.kernels.backends.sdpa import Sdpa
from longca.kernels.base import Case, Yes
from longca.kernels.inputs import make
from longca.masks import Mask

SEQLEN = 77
GAP = Mask.of(12, 12, [(3, 8, 0, 0, 4, 1)])  # rows 0 to 2 and 8 to 11 see nothing


def build(name: str) -> Mask:
    return small_mask(name, (11, 30, 1, 35))


def case_of(mask: Mask, dtype: str = "fp32", heads: tuple[int, int] = (4, 2), size: int = 16, **more: object) -> Case:
    return Case(mask.seqlen_q, mask.seqlen_k, *heads, size, 16, dtype, **more)  # type: ignore[arg-type]


CUTS = [((20, 77), (0, 77)), ((0, 77), (10, 50)), ((60, 77), (0, 30)), ((0, 40), (30, 77))]
MASKS = [*map(build, masks.names()), *(build("causal_document").rows([rows]).cols([keys]) for rows, keys in CUTS), GAP]


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.name)
def test_every_mask_and_cuts_of_other_lengths_with_rows_that_see_nothing(mask: Mask, variant: str) -> None:
    checked(f"sdpa:{variant}", mask, case_of(mask))
    answer = Sdpa(variant).supports(mask, case_of(mask))
    assert isinstance(answer, Yes)
    assert (answer.how == "native") == (mask.name in ("full", "causal"))


@pytest.mark.parametrize("variant", ["flash", "math"])
@pytest.mark.parametrize("dtype", ["fp64", "bf16", "fp16"])
@pytest.mark.parametrize("heads", [(3, 3), (6, 1), (6, 2)])
def test_dtypes_and_grouped_heads(heads: tuple[int, int], dtype: str, variant: str) -> None:
    for name in ("causal", "share_question"):
        checked(f"sdpa:{variant}", build(name), case_of(build(name), dtype, heads))


def test_another_head_size_for_v() -> None:
    checked("sdpa:math", build("causal"), case_of(build("causal"), size=24))
    assert not Sdpa("flash").supports(build("causal"), case_of(build("causal"), size=24))


def test_backward_from_the_merged_result_of_two_halves() -> None:
    """A ring's step: each half of the keys, given the out and lse over all keys, yields its part of the gradients."""
    whole, case = build("causal"), case_of(build("causal"), "fp64", partial_backward=True)
    q, k, v, dout = make(case)
    visible = torch.from_numpy(whole.dense())
    out, lse = attention(q, k, v, visible, case.softmax_scale)
    dq, dk, dv = gradients(dout, q, k, v, out, lse, visible, case.softmax_scale)
    summed = torch.zeros_like(q)
    for first, last in ((0, 40), (40, SEQLEN)):
        half = whole.cols([(first, last)])
        part = Sdpa("flash").prepare(half, case_of(half, "fp64", partial_backward=True))
        step_dq, step_dk, step_dv = part.backward(dout, q, k[first:last], v[first:last], out, lse)
        summed += step_dq
        torch.testing.assert_close((step_dk, step_dv), (dk[first:last], dv[first:last]))
    torch.testing.assert_close(summed, dq)


def test_nothing_stands_in_for_what_was_asked() -> None:
    mask = build("causal")
    for variant in ("cudnn", "efficient"):
        assert "cuda only" in registry.available(Sdpa(variant), "cpu").reason  # type: ignore[union-attr]
    ring = case_of(mask, partial_backward=True)
    assert registry.supports(Sdpa("flash"), mask, ring)
    assert not registry.supports(Sdpa("math"), mask, ring)
    on_gpu = Case(SEQLEN, SEQLEN, 4, 2, 64, 64, "bf16", "cuda")
    assert Sdpa("flash").supports(mask, on_gpu) == Yes()
    assert "full" in Sdpa("flash").supports(build("share_question"), on_gpu).reason  # type: ignore[union-attr]
    assert Sdpa("cudnn").supports(build("share_question"), on_gpu).quadratic  # type: ignore[union-attr]
    assert not Sdpa("cudnn").supports(mask, Case(SEQLEN, SEQLEN, 4, 2, 64, 64, "bf16", "cuda", deterministic=True))
    assert not Sdpa("efficient").supports(mask, Case(SEQLEN, SEQLEN, 4, 2, 64, 64, "fp64", "cuda"))
