"""Errors do not grow with the ring, because parts are added up in fp32."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from longca import masks
from parallel.running import Results, case_of, plan_of, reference, rms, run_local

MASK = masks.full(512)
CASE = case_of(512, (2, 2), "bf16", head_dim=32)


def errors(ranks: int, accumulate: torch.dtype | None = None) -> Results:
    """The rms error of each result."""
    results = run_local(replace(plan_of("ring_p2p", MASK, CASE, ranks), accumulate=accumulate))
    exact = reference(MASK, CASE)
    return Results(*(torch.tensor(rms(got - wanted)) for got, wanted in zip(results, exact, strict=True)))


def growth(ranks: int, accumulate: torch.dtype | None = None) -> dict[str, float]:
    alone, many = errors(1), errors(ranks, accumulate)
    return {name: float(getattr(many, name) / getattr(alone, name)) for name in ("out", "dq", "dk", "dv")}


@pytest.mark.parametrize("ranks", [8, 32])
def test_error_does_not_grow_with_the_ring(ranks: int) -> None:
    assert max(growth(ranks).values()) <= 1.5


@pytest.mark.parametrize("ranks", [8, 32])
def test_it_would_in_bf16(ranks: int) -> None:
    assert min(growth(ranks, torch.bfloat16).values()) > 1.5
