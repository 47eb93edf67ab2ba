"""The check must catch every way of being wrong that we know, and must not cry wolf."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from longca import masks
from longca.bench.check import check
from longca.bench.check.check import check_kernel
from longca.bench.check.comparison import _lse_error
from longca.bench.check.explain import Tokens
from longca.bench.check.reference import reference
from longca.bench.check.verdict import Error, Verdict
from longca.kernels import registry
from longca.kernels.base import Attention, Case
from longca.masks import Mask

S = 333
KERNEL = registry.get("torch:chunked")
LONG = 1 << 16  # keys per row in the long tests


def case_for(mask: Mask, dtype: str = "bf16", heads: str = "4:2") -> Case:
    heads_q, heads_kv = map(int, heads.split(":"))
    return Case(mask.seqlen_q, mask.seqlen_k, heads_q, heads_kv, 32, 32, dtype)


def verdict_on(mask: Mask, attention: Attention, dtype: str = "bf16", heads: str = "4:2") -> Verdict:
    case = case_for(mask, dtype, heads)
    return check_kernel(KERNEL, attention, case, reference(mask, case))


def with_mask(right: Mask, wrong: Mask, dtype: str = "bf16", heads: str = "4:2") -> Verdict:
    """A kernel that lowers the wrong mask."""
    assert right != wrong
    return verdict_on(right, KERNEL.prepare(wrong, case_for(right, dtype, heads)), dtype, heads)


class Broken(Attention):
    """An honest kernel with one thing wrong."""

    def __init__(self, mask: Mask, case: Case) -> None:
        self.case, self.inner = case, KERNEL.prepare(mask, case)

    def forward(self, q, k, v):
        return self.inner.forward(q, k, v)

    def backward(self, dout, q, k, v, out, lse):
        return self.inner.backward(dout, q, k, v, out, lse)


class ChangesQ(Broken):
    def forward(self, q, k, v):
        result = self.inner.forward(q, k, v)
        q[0, 0, 0] += 1
        return result


class SwapsRowsOfK(Broken):
    def backward(self, dout, q, k, v, out, lse):
        result = self.inner.backward(dout, q, k, v, out, lse)
        k.copy_(k.flip(0))
        return result


class LeaksIntoSilentRows(Broken):
    def backward(self, dout, q, k, v, out, lse):
        dq, dk, dv = self.inner.backward(dout, q, k, v, out, lse)
        return dq + 1e-6, dk, dv


def returning(forward: Callable[..., object] | None = None, backward: Callable[..., object] | None = None) -> type[Broken]:
    """A kernel whose answers are made into something else."""

    class Returning(Broken):
        def forward(self, q, k, v):
            answer = self.inner.forward(q, k, v)
            return forward(*answer) if forward else answer

        def backward(self, dout, q, k, v, out, lse):
            answer = self.inner.backward(dout, q, k, v, out, lse)
            return backward(*answer) if backward else answer

    return Returning


RETURNS: dict[str, type[Broken]] = {
    "its forward returns None, not the tuple (out, lse)": returning(lambda out, lse: None),
    "its forward returns one tensor, not the tuple (out, lse)": returning(lambda out, lse: out),
    "its forward returns 3 values, not the 2 of (out, lse)": returning(lambda out, lse: (out, lse, None)),
    "out is a list, not a plain torch.Tensor; a function returns out, or the tuple (out, lse)": returning(
        lambda out, lse: ([out, lse], None)
    ),
    "lse is a value of the type int, not a plain torch.Tensor": returning(lambda out, lse: (out, 3)),
    "it returns no lse, though its class says that it gives one": returning(lambda out, lse: (out, None)),
    "its backward returns 2 values, not the 3 of (dq, dk, dv)": returning(backward=lambda dq, dk, dv: (dq, dk)),
    "its backward returns None, not the tuple (dq, dk, dv)": returning(backward=lambda dq, dk, dv: None),
    "dk is None, not a plain torch.Tensor": returning(backward=lambda dq, dk, dv: (dq, None, dv)),
    "out is fp32, not bf16 as q is": returning(lambda out, lse: (out.float(), lse)),
    "lse is bf16, not fp32: it is fp64 where q is, and else fp32": returning(lambda out, lse: (out, lse.bfloat16())),
    "dv is fp64, not bf16 as v is": returning(backward=lambda dq, dk, dv: (dq, dk, dv.double())),
}


@pytest.mark.parametrize("sentence", RETURNS)
def test_what_is_returned_in_another_form_is_said(sentence: str) -> None:
    mask = masks.causal(64)
    assert verdict_on(mask, RETURNS[sentence](mask, case_for(mask))).reason == sentence


BROKEN: dict[type[Broken], str] = {
    ChangesQ: "changes its input q",
    SwapsRowsOfK: "changes its input k",
    LeaksIntoSilentRows: "dq is not 0",
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_broken_kernel_is_caught(broken: type[Broken], dtype: str) -> None:
    mask = masks.causal_document(S, seed=1)
    verdict = verdict_on(mask, broken(mask, case_for(mask, dtype)), dtype)
    assert not verdict.ok
    assert BROKEN[broken] in verdict.reason


def long_rows(mask: Mask) -> Mask:
    return mask.rows([(mask.seqlen_q - 192, mask.seqlen_q)])


LONG_MASKS: dict[str, Callable[[], tuple[Mask, Mask]]] = {
    "window": lambda: (masks.sliding_window_causal(LONG + 400, w=LONG), masks.sliding_window_causal(LONG + 400, w=LONG - 1)),
    "document": lambda: (
        masks.causal_document(LONG + 400, documents=[100, LONG + 300]),
        masks.causal_document(LONG + 400, documents=[101, LONG + 299]),
    ),
    "own key": lambda: (masks.causal(LONG + 400), Mask.of(LONG + 400, LONG + 400, [(1, LONG + 400, 0, 0, 1, 1)])),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_MASKS)
def test_one_key_of_64k_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AGAIN", 0)  # later calls of a wrong kernel say nothing more here
    right, wrong = (long_rows(mask) for mask in LONG_MASKS[name]())
    verdict = with_mask(right, wrong, "bf16", "1:1")
    assert not verdict.errors["out"].ok
    assert not verdict.errors["dv"].ok


@pytest.mark.parametrize("label", ["torch:plain", "torch:chunked", "sdpa:flash"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("part", [pytest.param(range(4), id="few"), pytest.param(range(4, 200, 5), id="many", marks=pytest.mark.slow)])
def test_honest_kernels_pass(label: str, dtype: str, part: range) -> None:
    for seed in part:
        name = masks.names()[seed % len(masks.names())]
        mask = masks.build(name, 150 + seed, seed=seed)
        case = case_for(mask, dtype)
        kernel = registry.choose(label, mask, case)
        verdict = check_kernel(kernel, kernel.prepare(mask, case), case, reference(mask, case, seed), seed)
        assert verdict.ok, f"{name}, seed {seed}: {verdict.reason}"


def test_nothing_wrong_is_no_error_even_where_nothing_is_allowed() -> None:
    assert Error(0.0, 0.0, "").ratio == 0
    assert Error(1e-9, 0.0, "").ratio == float("inf")


def test_the_worst_lse_is_found_beside_large_ones() -> None:
    right, rows = torch.tensor([[50.0, 0.0, float("-inf")]]), Tokens()
    allowed = torch.full_like(right, 1e-3)
    assert not _lse_error(torch.tensor([[50.0, 0.03, float("-inf")]]), right, allowed, rows).ok
    assert not _lse_error(torch.tensor([[50.0, 0.0, -1e30]]), right, allowed, rows).ok
    assert _lse_error(right.clone(), right, allowed, rows).ok


def test_an_lse_has_a_tolerance_for_each_row_and_head() -> None:
    """Large scores have large rounding errors, and must not excuse a wrong lse of a row with small ones."""
    right, allowed, rows = torch.zeros(2, 3), torch.tensor([[1e-3, 1e-1, 1e-3], [1e-3, 1e-3, 1e-3]]), Tokens()
    assert _lse_error(torch.tensor([[0.0, 0.05, 0.0], [0.0, 0.0, 0.0]]), right, allowed, rows).ok
    wrong = _lse_error(torch.tensor([[0.0, 0.05, 0.0], [0.0, 0.03, 0.0]]), right, allowed, rows)
    assert (wrong.ok, wrong.where, wrong.wrong) == (False, "token 1, head 1", 1)
    assert (wrong.error, wrong.allowed) == pytest.approx((0.03, 1e-3))
