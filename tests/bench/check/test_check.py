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
    return mask.rows([(mask.seqlen_q - 128, mask.seqlen_q)])


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
@pytest.mark.parametrize("part", [pytest.param(range(4), id="few"), pytest.param(range(4, 200, 11), id="many", marks=pytest.mark.slow)])
def test_honest_kernels_pass(label: str, dtype: str, part: range) -> None:
    for seed in part:
        name = masks.names()[seed % len(masks.names())]
        mask = masks.build(name, 150 + seed, seed=seed)
        case = case_for(mask, dtype)
        kernel = registry.choose(label, mask, case)
        verdict = check_kernel(kernel, kernel.prepare(mask, case), case, reference(mask, case, seed), seed)
        assert verdict.ok, f"{name}, seed {seed}: {verdict.reason}"


def test_an_lse_has_a_tolerance_for_each_row_and_head() -> None:
    """Large scores have large rounding errors, and must not excuse a wrong lse of a row with small ones."""
    right, allowed = torch.tensor([[0.0, 50.0, -torch.inf], [0.0, 0.0, 0.0]]), torch.tensor([[1e-3, 1e-1, 1e-3], [1e-3, 1e-3, 1e-3]])

    def error(*index: int, lse: float) -> Error:
        got = right.clone()
        got[0, 1] += 0.05
        got[index] = lse
        return _lse_error(got, right, allowed, Tokens())

    assert error(0, 0, lse=0.0).ok
    assert not error(0, 2, lse=-1e30).ok
    wrong = error(1, 1, lse=0.03)
    assert (wrong.ok, wrong.where, wrong.wrong) == (False, "token 1, head 1", 1)
    assert (wrong.error, wrong.allowed) == pytest.approx((0.03, 1e-3))
