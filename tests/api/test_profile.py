"""`longca.profile`: where time goes, the trace, and sentences for what cannot be profiled."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import longca
from longca.bench.one_device.profiling import CALLS
from textbook import attend

SMALL: dict[str, Any] = {"heads": "2:1", "head_dims": 16, "dtypes": "fp32", "device": "cpu"}


@longca.kernel(differentiable=False)
def sleepy(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Any, scale: float) -> torch.Tensor:
    """Most of its time goes to Python, and the rest to torch."""
    time.sleep(0.02)
    return attend(q, k, v, torch.from_numpy(mask.dense()), scale)


def test_time_is_split_among_operations_and_the_trace_has_every_call(tmp_path: Path) -> None:
    found = longca.profile(sleepy, "causal", 64, passes="fwd", out=tmp_path / "traces", **SMALL)
    assert found.ok
    spent = {row["name"]: row for row in found.rows}
    assert spent["Python, and what torch does not name"]["ms"] > 19
    assert spent["aten::bmm"]["count"] == 2
    assert found.rows[0]["ms"] == max(row["ms"] for row in found.rows)
    total, (one,) = sum(row["ms"] for row in found.rows), found.passes
    assert one.outcome.timed is not None
    assert total == pytest.approx(one.outcome.timed.median, rel=0.5)
    events = json.loads((tmp_path / "traces" / "fwd.json").read_text())["traceEvents"]
    assert sum(event.get("name") == "longca fwd" and event.get("cat") == "user_annotation" for event in events) == CALLS


def test_a_kernel_without_a_backward_is_profiled_in_its_forward(tmp_path: Path) -> None:
    found = longca.profile(sleepy, "causal", 64, out=tmp_path, **SMALL)
    assert [one.profiled is not None for one in found.passes] == [True, False]
    assert not found.ok
    assert "unsupported: sleepy has no backward" in repr(found)


def test_the_reason_that_a_kernel_is_not_here_is_whole(tmp_path: Path) -> None:
    found = longca.profile("fa4", "causal", 64, out=tmp_path, **SMALL)
    assert repr(found).count(f"unavailable: {found.passes[0].outcome.reason}") == 1  # of both passes, with how to install it
