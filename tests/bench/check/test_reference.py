"""The reference against a formula of its own that autograd differentiates, whatever part of rows and heads is in memory; and its store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from longca import masks
from longca.bench.check import comparison, reference_store
from longca.bench.check import reference as module
from longca.bench.check.explain import Tokens
from longca.bench.check.reference import data, reference, reference_of_rows
from longca.bench.check.stretch import taken_out
from longca.kernels.base import Case
from longca.kernels.inputs import Inputs, tokens
from longca.masks import AnyMask

SHORT, LONG = 100, 600  # below and above the length from which on rows are sampled
AT_ONCE = (1 << 22, 1 << 22)  # CHUNK_PAIRS and HEADS_PAIRS


def blocks(length: int, heads: int, band: masks.Mask | None = None) -> masks.BlockMask:
    """Half of the blocks of 32 per head; the first row block of the first head keeps none."""
    edges = np.unique(np.append(np.arange(0, length, 32), length))
    kept = np.random.default_rng(heads).random((heads, len(edges) - 1, len(edges) - 1)) < 0.5
    kept[0, 0] = False
    return masks.BlockMask(edges, edges, kept, band=band)


MASKS = {
    "blocks per head": lambda length: blocks(length, 3),
    "one block pattern": lambda length: blocks(length, 1),
    "blocks under a band": lambda length: blocks(length, 3, masks.causal(length)),
    "window": lambda length: masks.build("sliding_window_causal", length, w=13),
    "rows without keys": lambda length: masks.causal(length).cols([(30, length)]),
}


def textbook(mask: AnyMask, case: Case, inputs: Inputs) -> dict[str, torch.Tensor]:
    q, k, v = (x.double().requires_grad_() for x in inputs[:3])
    sinks = torch.full((case.heads_q,), -torch.inf).double() if inputs.sinks is None else inputs.sinks.double()
    sinks.requires_grad_()
    scores = torch.einsum("ihd,jhd->hij", q, k.repeat_interleave(case.group, 1)) * case.softmax_scale
    scores = case.softcap * torch.tanh(scores / case.softcap) if case.softcap else scores
    visible = torch.from_numpy(mask.dense()).view(mask.heads, case.seqlen_q, case.seqlen_k)
    scores = scores.masked_fill(~visible.repeat_interleave(case.heads_q // mask.heads, 0), -torch.inf)
    joined = torch.cat([scores, sinks[:, None, None].expand(-1, case.seqlen_q, 1)], 2)
    seen = joined.detach().isfinite().any(2, keepdim=True)
    p = joined.where(seen, 0.0).softmax(2).where(seen, 0.0)[..., :-1]
    out = torch.einsum("hij,jhd->ihd", p, v.repeat_interleave(case.group, 1))
    out.backward(inputs.dout.double())
    gradients = {"dq": q.grad, "dk": k.grad, "dv": v.grad} | ({} if inputs.sinks is None else {"dsinks": sinks.grad})
    return {"out": out.detach(), "lse": joined.detach().logsumexp(2), **{name: x for name, x in gradients.items() if x is not None}}


def assert_close(mine: dict[str, torch.Tensor], right: dict[str, torch.Tensor], rows: np.ndarray[Any, Any]) -> None:
    for name, value in mine.items():
        whole = right[name]
        part = whole[:, rows] if name == "lse" else whole[rows] if name in ("out", "dq") else whole
        torch.testing.assert_close(value, part, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize(
    ("extras", "at_once"),
    [
        *(({}, at_once) for at_once in (AT_ONCE, (1 << 22, 1), (5000, 1), (5000, 1 << 22))),
        *((extras, at_once) for extras in ({"softcap": 3.0}, {"sinks": True}) for at_once in (AT_ONCE, (5000, 1))),
    ],
)
@pytest.mark.parametrize("name", MASKS)
def test_the_reference_is_that_of_the_textbook(
    name: str, extras: dict[str, Any], at_once: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, pairs in zip(("CHUNK_PAIRS", "HEADS_PAIRS"), at_once, strict=True):
        monkeypatch.setitem(getattr(module, limit), "cpu", pairs)
    mask = MASKS[name](LONG if not extras and at_once[0] > 5000 else SHORT)
    case = Case(mask.seqlen_q, mask.seqlen_k, 6, 3, 8, 12, "fp64", **extras)
    made = reference(mask, case)
    for data_set, values in made.values.items():
        right = textbook(mask, case, data(case, made.sampled, data_set, 0))
        factors = {name: taken_out(name, data_set, case, x.device) for name, x in right.items()}
        right = {name: x if factors[name] is None else x * factors[name] for name, x in right.items()}
        assert_close(values, right, made.sampled.rows)
    rows = np.array([0, 31, 32, mask.seqlen_q - 1])
    inputs = data(case, made.sampled, "plain", 0)
    drawn = reference_of_rows(mask, case, inputs, rows).values["plain"]
    assert drawn.keys() == {"out", "lse", "dq"}
    assert_close(drawn, textbook(mask, case, inputs), rows)


def test_the_expected_error_does_not_depend_on_the_heads_that_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    mask, case = blocks(SHORT, 3), Case(SHORT, SHORT, 6, 3, 8, 12, "bf16", softcap=3.0, sinks=True)
    together = reference(mask, case).rounding
    monkeypatch.setitem(module.HEADS_PAIRS, "cpu", 1)
    for data_set, rounding in reference(mask, case).rounding.items():
        for name, alone in rounding.items():
            torch.testing.assert_close(together[data_set][name], alone, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(("dtype", "kind"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
def test_numbers_that_large_numbers_push_out_of_the_range_of_a_dtype_are_no_errors(dtype: str, kind: torch.dtype) -> None:
    """The kernel's dv is 2^60 times smaller than the reference's, and GPUs flush what is smaller than normal numbers."""
    right = torch.full((6, 2, 8), 3e-22, dtype=torch.float64)
    factor = torch.tensor([2.0**60, 2.0**-60], dtype=torch.float64)[:, None]
    flushed = right / factor
    flushed[flushed < torch.finfo(kind).tiny] = 0.0
    tokens, rounding = Tokens(torch.arange(6), sampled=False), torch.full((6, 2), 1e-24, dtype=torch.float64)
    assert comparison._worst(flushed.to(kind), right, rounding, tokens, dtype, factor).ok
    assert not comparison._worst((flushed * 0).to(kind), right * 1e10, rounding, tokens, dtype, factor).ok


def test_a_reference_is_computed_once_and_travels_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = masks.causal_document(256, seed=3)
    case, made = Case(256, 256, 4, 2, 16, 16, "bf16"), list[Any]()
    monkeypatch.setattr(reference_store, "reference", lambda *given: made.append(given) or reference(*given))
    first, second = reference_store.ReferenceStore(), reference_store.ReferenceStore()
    computed = first.get(mask, case, 0, tmp_path)
    assert first.get(mask, case, 0, tmp_path) is computed
    read = second.get(mask, case, 0, tmp_path)
    assert len(made) == 1
    assert (read.sampled.rows == computed.sampled.rows).all()
    assert (read.sampled.loud_keys == computed.sampled.loud_keys).all()
    for kind in reference_store.KINDS:
        for data_set, values in getattr(computed, kind).items():
            assert all(torch.equal(getattr(read, kind)[data_set][name], tensor) for name, tensor in values.items())
    for other in (replace(case, dtype="fp16"), replace(case, heads_kv=4)):
        second.get(mask, other, 0, tmp_path)
    second.get(mask, case, 1, tmp_path)
    assert len(made) == 4
    monkeypatch.setattr(reference_store, "MADE_BY", "other code")
    reference_store.ReferenceStore().get(mask, case, 0, tmp_path)
    assert len(made) == 5
    monkeypatch.setattr(reference_store, "MOST_BYTES", 1000)
    reference_store.ReferenceStore().get(mask, case, 2, tmp_path)
    assert len(list(tmp_path.iterdir())) == 5  # a large one stays where it was made


def test_tokens_of_ranges_are_those_of_the_whole() -> None:
    case, ranges = Case(5000, 5000, 2, 1, 8, 8, "fp32"), [(4000, 4100), (10, 2100), (4090, 4999), (0, 1), (1023, 1025), (7, 7)]
    whole = tokens("q", case, [(0, 5000)], 3)
    assert torch.equal(tokens("q", case, ranges, 3), torch.cat([whole[first:last] for first, last in ranges]))
