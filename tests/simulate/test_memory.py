"""The memory that plans state, against a formula and against what was measured on one H200."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from longca import masks
from longca.kernels.base import Case
from longca.parallel import registry
from longca.parallel.recording import record
from longca.results.metrics import GIB
from longca.results.problem import Pass
from longca.results.reading import read_all
from longca.results.record import Record
from longca.simulate.programs import Programs
from parallel.running import STATIC

ROOT = Path(__file__).parents[2]
JOURNALS = tuple(ROOT / "results" / "h200" / name for name in ("model-shapes", "paper-kernel"))
LONG = 8192  # tokens from which on what a call holds is not small beside the rest


@pytest.mark.parametrize("shape", [(128, 128, 192, 128), (64, 8, 128, 128)])
@pytest.mark.parametrize("method", STATIC)
def test_a_method_on_one_gpu_holds_what_its_kernel_holds(method: str, shape: tuple[int, int, int, int]) -> None:
    """No method copies what one GPU has already: q, k, v, out and lse, in a backward also dout, the gradients and their fp32 sums."""
    tokens, (heads_q, heads_kv, size, size_v) = 256, shape
    plan = registry.plan(method, masks.causal(tokens), Case(tokens, tokens, *shape, "bf16", "cuda"), 1, kernel="fa4")
    program = record(plan, 0)
    inputs, out = heads_q * size + heads_kv * (size + size_v), heads_q * size_v
    sums = heads_q * (size + 2) + (heads_kv * (size + size_v) if heads_q > heads_kv else 0)
    assert program.forward_peak == tokens * (2 * (inputs + out) + 4 * heads_q)
    assert program.peak == tokens * (4 * (inputs + out) + 4 * heads_q + 4 * sums)
    assert {event.kind for event in program.forward + program.backward} == {"attention"}


@cache
def stated(kernel: str, pass_: Pass, *shape: int) -> int:
    plan = registry.plan("ulysses", masks.causal(shape[0]), Case(*shape, "bf16", "cuda"), 1, kernel=kernel)
    return max(Programs.of(plan).peaks(pass_))


def errors(kernel: str, pass_: Pass, mask: str = "causal") -> list[float]:
    """What a plan of one GPU states over what was measured there, inputs included, less 1."""

    def error(one: Record) -> float:
        assert one.peak_gib is not None
        case = one.problem
        out = case.heads_q * case.head_dim_v
        inputs = case.heads_q * case.head_dim + case.heads_kv * (case.head_dim + case.head_dim_v) + (out if pass_ is Pass.BWD else 0)
        shape = (case.seqlen, case.seqlen, case.heads_q, case.heads_kv, case.head_dim, case.head_dim_v)
        return stated(one.kernel, pass_, *shape) / (one.peak_gib * GIB + 2 * case.seqlen * inputs) - 1

    records = [one for one in read_all(JOURNALS).records if one.ok and one.kernel == kernel and one.problem.pass_ is pass_]
    return [error(one) for one in records if one.problem.mask == mask and one.problem.seqlen >= LONG]


@pytest.mark.parametrize("pass_", [Pass.FWD, Pass.BWD])
@pytest.mark.parametrize("kernel", ["fa3", "fa4"])
def test_it_is_what_was_measured(kernel: str, pass_: Pass) -> None:
    """All head sizes, 128:128 heads of 192/128 included."""
    found = errors(kernel, pass_)
    assert len(found) > 15
    assert max(map(abs, found)) < 0.01


def test_the_docs_say_where_it_is_too_low() -> None:
    page = " ".join((ROOT / "docs" / "simulate.md").read_text().split())
    said = dict(re.findall(r"`(\w+)` (\d+) %", page.partition("hold more than they declare")[2].partition(".")[0]))
    assert set(said) == {"fa2", "cudnn_flex", "cudnn"}
    for kernel, percent in said.items():
        assert round(-100 * min(errors(kernel, Pass.BWD))) == int(percent)
