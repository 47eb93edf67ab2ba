"""What is said of a wrong kernel must lead its author to the mistake."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np
import pytest
import torch

from longca import masks
from longca.bench.check import check
from longca.bench.check.check import AGAIN, check_kernel
from longca.bench.check.comparison import compare
from longca.bench.check.reference import reference
from longca.bench.check.verdict import UNSTEADY, Verdict
from longca.kernels import registry
from longca.kernels.base import Attention, Case
from longca.masks import Mask

KERNEL = registry.get("torch:chunked")


class Changed(Attention):
    """An honest kernel whose answers are changed afterwards."""

    def __init__(self, mask: Mask, case: Case, forward: Callable[..., object] | None, backward: Callable[..., object] | None) -> None:
        self.inner, self.changes = KERNEL.prepare(mask, case), (forward, backward)

    def forward(self, q, k, v):
        answer = self.inner.forward(q, k, v)
        return self.changes[0](*answer) if self.changes[0] else answer

    def backward(self, dout, q, k, v, out, lse):
        answer = self.inner.backward(dout, q, k, v, out, lse)
        return self.changes[1](*answer) if self.changes[1] else answer


def verdict_on(
    mask: Mask, forward: Callable[..., object] | None = None, backward: Callable[..., object] | None = None, deterministic: bool = False
) -> Verdict:
    case = Case(mask.seqlen_q, mask.seqlen_k, 4, 2, 16, 16, "bf16", deterministic=deterministic)
    return check_kernel(KERNEL, Changed(mask, case, forward, backward), case, reference(mask, case))


def put(tensor: torch.Tensor, index: object, value: float) -> torch.Tensor:
    tensor = tensor.clone()
    tensor[index] = value
    return tensor


RETURNS: dict[str, dict[str, Callable[..., object]]] = {
    "its forward returns None, not the tuple (out, lse)": {"forward": lambda out, lse: None},
    "its forward returns one tensor, not the tuple (out, lse)": {"forward": lambda out, lse: out},
    "its forward returns 3 values, not the 2 of (out, lse)": {"forward": lambda out, lse: (out, lse, None)},
    "out is a list, not a plain torch.Tensor; a function returns out, or the tuple (out, lse)": {"forward": lambda *both: ([*both], None)},
    "lse is a value of the type int, not a plain torch.Tensor": {"forward": lambda out, lse: (out, 3)},
    "it returns no lse, though its class says that it gives one": {"forward": lambda out, lse: (out, None)},
    "its backward returns 2 values, not the 3 of (dq, dk, dv)": {"backward": lambda dq, dk, dv: (dq, dk)},
    "its backward returns None, not the tuple (dq, dk, dv)": {"backward": lambda dq, dk, dv: None},
    "dk is None, not a plain torch.Tensor": {"backward": lambda dq, dk, dv: (dq, None, dv)},
    "out is fp32, not bf16 as q is": {"forward": lambda out, lse: (out.float(), lse)},
    "lse is bf16, not fp32: it is fp64 where q is, and else fp32": {"forward": lambda out, lse: (out, lse.bfloat16())},
    "dv is fp64, not bf16 as v is": {"backward": lambda dq, dk, dv: (dq, dk, dv.double())},
}


@pytest.mark.parametrize("sentence", RETURNS)
def test_what_is_returned_in_another_form_is_said(sentence: str) -> None:
    assert verdict_on(masks.causal(64), **RETURNS[sentence]).reason == sentence


def test_the_worst_element_and_the_wrong_tokens_and_heads_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "AGAIN", 0)

    def said(*wrong: object) -> str:
        def change(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            for index in wrong:
                out = put(out, index, 9.0)
            return out, lse

        return verdict_on(masks.causal(400), change).reason

    assert "wrong in 48 of 400 tokens (12 %): tokens 16-31 and 64-95; token 16 sees the keys [0, 17)" in said(slice(16, 32), slice(64, 96))
    assert "wrong in 3 of 400 tokens (0.75 %): the last of every 128 tokens; token 127" in said(slice(127, None, 128))
    assert "wrong in 6 of 400 tokens (1.5 %): number 37 (from 0) of every 64 tokens; token 37" in said(slice(37, None, 64))
    assert "in 4 ranges, the first 3-4, the last 300-302" in said(slice(3, 5), 20, 50, slice(300, 303))
    assert "tokens 50-59, only in heads 1, 2 of 4; token 50 sees the keys [0, 51)" in said((slice(50, 60), slice(1, 3)))
    assert " at token 133, head 2 of the plain data (element 7 is 9, not " in said((133, 2, 7))


@pytest.mark.parametrize(("value", "word"), [(math.nan, "NaN"), (-math.inf, "-infinity")])
def test_what_is_no_number_is_named_with_its_place(value: float, word: str) -> None:
    mask = masks.causal(200)
    said = verdict_on(mask, lambda out, lse: (put(out, (slice(30, 33), 2), value), lse)).reason
    assert said.startswith(f"out holds {word} at token 30, head 2, and NaN or infinity in 3 of 200 tokens (1.5 %)")
    assert "; out is" not in said
    assert "wrong in" not in said  # what else is wrong follows from it
    said = verdict_on(mask, lambda out, lse: (out, put(lse, (1, 7), value))).reason
    assert said.startswith(f"lse is {word} at token 7, head 1 of the plain data, wrong in 1 of 200 tokens (0.5 %): token 7")
    assert "e+38" not in said
    said = verdict_on(mask, None, lambda dq, dk, dv: (dq, dk, put(dv, (9, 1), value))).reason
    assert said == f"dv is {word} at token 9, head 1 of the plain data, wrong in 1 of 200 tokens (0.5 %): token 9, only in head 1 of 2"


def test_a_rank_speaks_of_the_tokens_of_the_whole_sequence() -> None:
    mask, own = masks.causal(200), np.r_[40:80, 150:200]
    case, local = Case(200, 200, 2, 2, 16, 16, "fp32"), Case(90, 90, 2, 2, 16, 16, "fp32")
    whole = reference(mask, case)
    mine = whole.cut(own)
    assert (own[mine.sampled.few] == whole.sampled.few[np.isin(whole.sampled.few, own)]).all()
    verdict = Verdict()
    compare({"out": mine.values["plain"]["out"] + put(torch.zeros(90, 2, 16), 45, 1.0)}, mine, "plain", local, verdict)
    assert verdict.reason.startswith("out is off by 1 at token 155, head ")
    assert verdict.reason.endswith("wrong in 1 of 90 tokens (1.1 %): token 155; token 155 sees the keys [0, 156)")


def noisy(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Less than is allowed, but other bits each time."""
    return tuple(torch.where(torch.rand_like(x) > 0.75, x * (1 + 2**-7), x) if x.dtype == torch.bfloat16 else x for x in tensors)


def test_noise_passes_unless_determinism_is_asked_for() -> None:
    mask = masks.causal(200)
    assert verdict_on(mask, noisy, noisy).reason == ""
    said = verdict_on(mask, noisy, None, deterministic=True).reason
    assert said == "its forward is not deterministic, as was asked for: out differs in a second call on the same inputs"
    said = verdict_on(mask, None, noisy, deterministic=True).reason
    assert said == "its backward is not deterministic, as was asked for: dq and dk and dv differ in a second call on the same inputs"
    assert verdict_on(mask, deterministic=True).reason == ""


@pytest.mark.parametrize(
    ("wrong_calls", "counts"),
    [
        ((0,), "1 of 3 calls, first in call 1"),
        ((1, 2), "2 of 4 calls, first in call 2"),
        (range(1, 100), f"{AGAIN + 2} of {AGAIN + 3} calls, first in call 2"),
    ],
)
def test_a_kernel_that_is_wrong_in_some_calls_is_not_wrong_on_some_data(wrong_calls: Sequence[int], counts: str) -> None:
    """The first call is on plain data. The last call of the second case is right on the data on which two before it were wrong; that of
    the third case is wrong on the data on which the first one was right."""
    calls = count()

    def sometimes(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return out + 0.5 if next(calls) in wrong_calls else out, lse

    reason = verdict_on(masks.causal(200), sometimes).reason
    assert reason.startswith(f"{UNSTEADY}, wrong in {counts}: out is off by ")


@pytest.mark.parametrize("factor", [1.5, 1000.0])
def test_a_wrong_kernel_whose_gradients_are_noisy_is_not_called_unsteady(factor: float) -> None:
    """Sums in another order differ in proportion to what they add up, which may be far too large."""
    reason = verdict_on(masks.causal(200), None, lambda *gradients: noisy(*(factor * x for x in gradients))).reason
    assert reason.startswith("dq is off by")


def test_a_kernel_that_is_wrong_on_some_data_alone_is_called_again_there() -> None:
    calls, mask = [], masks.causal(200)

    def wrong_where_loud(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loud = bool(out.abs().max() > 16)
        calls.append(loud)
        return put(out, 7, math.nan) if loud else out, lse

    assert verdict_on(mask, wrong_where_loud).reason.startswith("only on data with loud edges and large numbers: out holds NaN at token 7")
    assert calls == [False, True, *[True] * AGAIN, False]
    calls.clear()
    assert verdict_on(mask, lambda out, lse: calls.append(False) or (out, lse)).reason == ""
    assert len(calls) == 2, "a right kernel is not called again"


@pytest.mark.parametrize("last", [1, AGAIN])
def test_a_wrong_kernel_stays_wrong_if_a_later_call_raises(last: int) -> None:
    calls = count()

    def wrong_then_raises(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if next(calls) == last:
            raise ValueError("no more\nof this")
        return out + 0.5, lse

    verdict = verdict_on(masks.causal(200), wrong_then_raises)
    assert not verdict.ok
    assert verdict.reason.startswith("out is off by 0.5 at token ")
    assert verdict.reason.endswith("; in a later call it raises ValueError: no more of this")
    assert next(calls) == last + 1, "a kernel that raised is not called again"


def test_a_kernel_that_was_right_until_it_raised_is_not_called_wrong() -> None:
    calls = count()

    def right_then_raises(out: torch.Tensor, lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if next(calls):
            raise ValueError("no more of this")
        return out, lse

    with pytest.raises(ValueError, match="no more of this"):
        verdict_on(masks.causal(200), right_then_raises)
