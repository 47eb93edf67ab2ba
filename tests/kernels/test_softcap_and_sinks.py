"""Softcap and sinks: against a formula written out, in the check, and refused by kernels that do not declare them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import longca
from kernels.stand_ins import assert_same, attention, leaves
from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.errors import BadInput, Refused
from longca.kernels import inputs, registry, sinks
from longca.kernels.base import Attention, Case, No
from longca.kernels.inputs import make
from longca.masks import Mask

GAP = Mask.of(96, 96, [(0, 40, 0, 0, 1, 1), (60, 96, 0, 0, 1, 1)])  # rows 40 to 59 see nothing
CASES = [(0.0, True), (1.5, False), (1.5, True)]


def textbook(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, softcap: float, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    return attention(q, k, v, torch.from_numpy(mask.dense()), q.shape[2] ** -0.5, softcap=softcap, sinks=sinks)


@pytest.mark.parametrize("kernel", ["torch:plain", "torch:chunked", "sdpa:flash"])
@pytest.mark.parametrize(("softcap", "with_sinks"), CASES)
@pytest.mark.parametrize("mask", [masks.causal(96), masks.sliding_window_causal(96, w=9), GAP], ids=["causal", "window", "gap"])
def test_value_lse_and_gradients(mask: Mask, softcap: float, with_sinks: bool, kernel: str) -> None:
    made = make(Case(96, 96, 4, 2, 16, 16, "fp64", sinks=with_sinks))
    given = [*made[:3], *([] if made.sinks is None else [made.sinks])]
    ours, theirs = leaves(*given), leaves(*given)
    options: dict[str, Any] = {"softcap": softcap, "kernel": kernel, "sinks": ours[3] if with_sinks else None}
    if softcap and kernel == "sdpa:flash":
        with pytest.raises(Refused, match=r"sdpa:flash cannot cap scores \(softcap\)"):
            longca.attention(*ours[:3], mask, **options)
        return
    out, lse = longca.attention(*ours[:3], mask, return_lse=True, **options)
    right, right_lse = textbook(*theirs[:3], mask, softcap, theirs[3] if with_sinks else None)
    torch.testing.assert_close((out, lse), (right, right_lse.to(lse.dtype)), rtol=1e-6, atol=1e-8)
    for mine, other in zip(torch.autograd.grad(out, ours, made.dout), torch.autograd.grad(right, theirs, made.dout), strict=True):
        torch.testing.assert_close(mine, other.nan_to_num(0.0), rtol=1e-6, atol=1e-8)


class _Wrong(Attention):
    """Runs another attention with one part of it wrong."""

    def __init__(self, inner: Attention, fault: str) -> None:
        self.inner, self.fault = inner, fault

    def forward(self, q_LHD: Any, k_LHD: Any, v_LHD: Any) -> Any:
        return self.inner.forward(q_LHD, k_LHD, v_LHD)

    def backward(self, *given: Any) -> Any:
        return self.inner.backward(*given)

    def forward_with_sinks(self, q_LHD: Any, k_LHD: Any, v_LHD: Any, sinks_H: Any) -> Any:
        out, lse = self.inner.forward_with_sinks(q_LHD, k_LHD, v_LHD, sinks_H.roll(1) if self.fault == "other heads" else sinks_H)
        return out, self.inner.forward(q_LHD, k_LHD, v_LHD)[1] if self.fault == "lse without sinks" else lse

    def backward_with_sinks(self, *given: Any) -> Any:
        *gradients, dsinks = self.inner.backward_with_sinks(*given)
        wrong = {"sign": -dsinks, "small": dsinks * 1.3}
        return *gradients, wrong.get(self.fault, dsinks)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(
    ("fault", "tensor"), [("other heads", "out"), ("lse without sinks", "lse"), ("sign", "dsinks"), ("small", "dsinks")]
)
def test_wrong_sinks_are_found(fault: str, tensor: str, dtype: str) -> None:
    mask, case = masks.causal(200), Case(200, 200, 4, 2, 32, 32, dtype, sinks=True)
    kernel = registry.get("torch:plain")
    verdict = check_kernel(kernel, _Wrong(kernel.prepare(mask, case), fault), case, reference(mask, case))
    assert not verdict.ok
    assert verdict.reason.startswith(f"{tensor} is off by") or f": {tensor} is off by" in verdict.reason


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("wrong", [0.0, 45.0, 55.0])
def test_a_wrong_softcap_is_found(wrong: float, dtype: str) -> None:
    mask, case = masks.causal(200), Case(200, 200, 4, 2, 32, 32, dtype, softcap=50.0)
    kernel = registry.get("torch:plain")
    verdict = check_kernel(kernel, kernel.prepare(mask, replace(case, softcap=wrong)), case, reference(mask, case))
    assert not verdict.ok


@pytest.mark.parametrize("label", [label for name in registry.names() for label in registry.labels(name)])
def test_only_kernels_that_declare_them_are_run(label: str) -> None:
    kernel, mask = registry.get(label), masks.causal(256)
    case = Case(256, 256, 8, 8, 128, 128, "bf16", kernel.devices[0])
    if not kernel.takes_softcap:
        assert registry.supports(kernel, mask, replace(case, softcap=30.0)) == No("cannot cap scores (softcap)")
    if kernel.sink_support == "no":
        assert registry.supports(kernel, mask, replace(case, sinks=True)) == No("cannot do attention sinks")
    if kernel.sink_support == "after":  # sinks are added to out and lse, and the backward starts from those
        assert kernel.backward == "functional" or label.startswith("flex")
        assert kernel.gives_lse
    assert isinstance(registry.supports(kernel, mask, replace(case, softcap=float("nan"))), No)


def test_functions_get_what_they_declare() -> None:
    seen: dict[str, Any] = {}

    @longca.kernel
    def plain(q: Any, k: Any, v: Any, mask: Any, scale: float) -> torch.Tensor:
        raise AssertionError

    @longca.kernel
    def knows_both(q: Any, k: Any, v: Any, mask: Any, scale: float, softcap: float = 0.0, sinks: Any = None) -> torch.Tensor:
        seen.update(softcap=softcap, sinks=sinks)
        return textbook(q, k, v, mask, softcap, sinks)[0]

    made, mask = make(Case(40, 40, 4, 2, 16, 16, "fp64", sinks=True)), masks.causal(40)
    for option, words in ({"softcap": 2.0}, "cannot cap scores"), ({"sinks": made.sinks}, "cannot do attention sinks"):
        with pytest.raises(Refused, match=f"^plain {words}"):
            longca.attention(*made[:3], mask, kernel=plain, **option)
    q = made.q.clone().requires_grad_()
    logits = made.sinks.clone().requires_grad_()  # type: ignore[union-attr]
    out = longca.attention(q, made.k, made.v, mask, kernel=knows_both, softcap=2.0, sinks=logits)
    assert seen["softcap"] == 2.0
    right = longca.attention(q, made.k, made.v, mask, kernel="torch", softcap=2.0, sinks=logits)
    assert_same((out, q, logits), (right, q, logits), made.dout)
    longca.attention(q, made.k, made.v, mask, kernel=knows_both)
    assert seen == {"softcap": 0.0, "sinks": None}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"softcap": -1.0}, "softcap must be a positive number, or 0 for none, not -1"),
        ({"sinks": torch.zeros(3)}, r"sinks must be one logit per query head, a float tensor \[4\], not torch.float32 \[3\]"),
        ({"sinks": torch.zeros(4, dtype=torch.int64)}, r"a float tensor \[4\], not torch.int64 \[4\]"),
        ({"sinks": torch.zeros(4, device="meta")}, "sinks must lie on the device of q, cpu, not on meta"),
        ({"softcap": 1.0, "kernel": "sdpa"}, r"cannot cap scores \(softcap\)"),
    ],
)
def test_bad_values_are_one_sentence(options: dict[str, Any], sentence: str) -> None:
    q = torch.randn(8, 4, 16)
    with pytest.raises((BadInput, Refused), match=sentence) as raised:
        longca.attention(q, q, q, masks.causal(8), **options)
    assert str(raised.value).count("\n") == 0


def test_sinks_are_the_same_for_all_dtypes_and_matter() -> None:
    case = Case(4096, 4096, 8, 2, 16, 16, "bf16", sinks=True)
    one, other = inputs.make_sinks(case), inputs.make_sinks(replace(case, dtype="fp64"))
    assert one is not None
    assert other is not None
    assert one.dtype == torch.float32
    torch.testing.assert_close(one, other.float())
    assert one.min() > 1  # e^-7 of a row with 4096 keys would change nothing that bf16 shows
    assert inputs.make_sinks(replace(case, sinks=False)) is None
    out, lse = sinks.add(torch.ones(3, 8, 2), torch.full((8, 3), float("-inf")), one)
    assert not out.any()
    assert torch.equal(lse, one[:, None].expand(-1, 3))
