"""Errors do not grow with the ring, because parts are added up in fp32."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from longca import masks
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.comm.null import NullComm
from longca.parallel.primitives.delta import delta_of, out_of
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Merger
from parallel.running import Results, case_of, plan_of, reference, rms, run_local

MASK = masks.full(512)
CASE = case_of(512, (2, 2), "bf16", head_dim=32)


@lru_cache
def errors(ranks: int, accumulate: torch.dtype | None = None, method: str = "ring_p2p", node: int = 0) -> Results:
    """The rms error of each result."""
    plan = plan_of(method, MASK, CASE, ranks, options={"node": node} if node else {})
    results = run_local(replace(plan, accumulate=accumulate))
    exact = reference(MASK, CASE)
    return Results(*(torch.tensor(rms(got - wanted)) for got, wanted in zip(results, exact, strict=True)))


def growth(ranks: int, accumulate: torch.dtype | None = None, method: str = "ring_p2p", node: int = 0) -> dict[str, float]:
    alone, many = errors(1), errors(ranks, accumulate, method, node)
    return {name: float(getattr(many, name) / getattr(alone, name)) for name in ("out", "dq", "dk", "dv")}


@pytest.mark.parametrize("ranks", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_error_does_not_grow_with_the_ring(ranks: int) -> None:
    assert max(growth(ranks).values()) <= 1.5


@pytest.mark.parametrize("method", [name for name in registry.names() if registry.get(name).takes_every_mask and name != "ulysses"])
def test_nor_with_the_ranks_of_the_other_methods(method: str) -> None:
    assert max(growth(16, method=method).values()) <= 1.5


@pytest.mark.parametrize("node", [2, 8])
def test_nor_by_relays(node: int) -> None:
    """They send sums in fp32: rounded to bf16 once more, dk and dv would be off by 1.6 to 1.7 times as much as on one rank."""
    assert max(growth(16, method="magi", node=node).values()) <= 1.5


@pytest.mark.parametrize("ranks", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_it_would_in_bf16(ranks: int) -> None:
    assert min(growth(ranks, torch.bfloat16).values()) > 1.5


@pytest.mark.parametrize("size", [1e-30, 1e-4, 1.0, 1e4])
def test_an_out_made_of_delta_has_that_delta(size: float) -> None:
    """To a rounding of bf16, also where all of dout is the same number; 0 where dout is."""
    generator = torch.Generator().manual_seed(0)
    dout = (torch.randn(64, 2, 32, generator=generator) * size).bfloat16()
    dout[:8], dout[8:16] = 0, size
    out = torch.randn(64, 2, 32, generator=generator).bfloat16()
    delta = delta_of(out, dout, torch.float32)
    made = out_of(dout, delta)
    assert (made[:8] == 0).all()
    assert made.float().norm() <= 1.01 * out.float().norm()
    again = (made.double() * dout.double()).sum(-1).T
    assert ((again - delta).abs() <= 2**-8 * delta.abs()).all()


def test_a_small_weight_keeps_its_digits_when_a_large_part_comes_after() -> None:
    """A row whose first key is loud and hardly seen: 1 - weight would be off by a rounding of 1, which a loud value makes visible."""
    case = Case(1, 1, 1, 1, 8, 8, "fp32")
    comm = NullComm(0, 1)
    loud, quiet = torch.full((1, 1, 8), 64.0), torch.zeros(1, 1, 8)
    merger = Merger(LocalKernel("torch:chunked", case, comm), loud, loud)
    merger.add(slice(0, 1), loud, torch.tensor([[0.0]]))
    merger.add(slice(0, 1), quiet, torch.tensor([[9.0]]))
    wanted = 64 * torch.sigmoid(torch.tensor(-9.0, dtype=torch.float64))
    assert float((merger.result()[0] / wanted - 1).abs().max()) < 3e-7
