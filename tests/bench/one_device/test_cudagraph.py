"""Captured calls, and kernels that return a buffer of their own, which the next call writes to."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import longca
from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.errors import BadInput, Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.results.record import Record, Status

WRONG = Path(__file__).parents[1] / "check" / "wrong"
CASE, MASK = Case(200, 200, 2, 1, 32, 32, "fp32"), masks.causal(200)


@pytest.fixture
def reuses_out(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(WRONG))
    return importlib.import_module("wrong_memory").ReusesOut()


def test_a_kernel_that_declares_its_own_buffer_is_right_and_callers_get_copies(reuses_out: Kernel) -> None:
    def reason() -> str:
        return check_kernel(reuses_out, reuses_out.prepare(MASK, CASE), CASE, reference(MASK, CASE)).reason

    assert reason() == "a later call writes to the memory of out"
    reuses_out.returns_own_buffer = True
    assert reason() == ""
    q, k, v = (torch.randn(200, heads, 32) for heads in (2, 1, 1))
    first = longca.attention(q, k, v, MASK, kernel=reuses_out)
    before = first.clone()
    longca.attention(q, k, -v, MASK, kernel=reuses_out)
    assert torch.equal(first, before)
    with pytest.raises(Refused, match="buffer"):
        registry.choose(reuses_out, MASK, Case(200, 200, 2, 1, 32, 32, "fp32", partial_backward=True))


def test_calls_are_captured_on_a_gpu_only() -> None:
    with pytest.raises(BadInput, match="--cudagraph"):
        longca.run(kernels="torch", masks="causal", seqlens=64, device="cpu", cudagraph=True)


def records(folder: Path, **settings: Any) -> dict[str, Record]:
    done = longca.run(masks="causal", seqlens=512, heads="8:2", head_dims=64, dtypes="bf16", out=folder, progress=False, **settings)
    return {f"{record.kernel}:{record.variant} {record.problem.pass_}": record for record in done.records}


@pytest.mark.gpu
def test_the_replay_of_a_graph_is_timed_and_checked_as_a_call_is(tmp_path: Path) -> None:
    passes, kernels = "fwd,bwd,fwd+bwd", "sdpa:flash,sdpa:math,torch:plain"
    usual = records(tmp_path, kernels=kernels, passes=passes)
    captured = records(tmp_path, kernels=kernels, passes=passes, cudagraph=True)
    assert len(usual) == len(captured) == 9
    for name, record in captured.items():
        assert (record.status, record.reason) == (Status.OK, ""), name
        assert record.problem.cudagraph
        assert record.key != usual[name].key
        assert record.check == usual[name].check
        assert record.times.call_ms < usual[name].times.call_ms  # one launch for all
        assert record.memory.peak_gib > 0


SYNCHRONISES = """
import longca

@longca.kernel(differentiable=False)
def synchronises(q, k, v, mask, scale):
    q.sum().item()
    return longca.attention(q, k, v, mask, kernel="torch:plain", scale=scale)
"""


@pytest.mark.gpu
def test_what_cannot_be_captured_is_unsupported_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "synchronises.py").write_text(SYNCHRONISES)
    (record,) = records(tmp_path / "out", plugins=tmp_path / "synchronises.py", passes="fwd", cudagraph=True).values()
    assert record.status is Status.UNSUPPORTED
    assert record.reason.startswith("its fwd cannot be captured in a CUDA graph: ")
