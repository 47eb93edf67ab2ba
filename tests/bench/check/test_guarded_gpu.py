"""Zones around what a kernel allocates on a GPU, and numbers far out in the range of a dtype."""

from __future__ import annotations

from pathlib import Path

import pytest

import longca
from longca.bench.check.trial_names import TrialName
from longca.results.record import Status

pytestmark = pytest.mark.gpu
SHAPE = {"masks": "causal", "seqlens": 512, "heads": "4:2", "head_dims": 64, "dtypes": "bf16", "device": "cuda", "progress": False}
WRITES = """
import torch, triton
import triton.language as tl
import longca


@triton.jit
def write(ptr, first, COUNT: tl.constexpr):
    tl.store(ptr + first + tl.arange(0, COUNT), 0.0)


@longca.kernel(differentiable=False)
def writes_past_out(q, k, v, mask, scale):
    out = torch.empty_like(q)
    out.copy_(longca.attention(q, k, v, mask, kernel="torch:plain", scale=scale))
    write[(1,)](out, out.numel() - 4 + PAST, 4)
    out[-1, -1, -4:] = longca.attention(q, k, v, mask, kernel="torch:plain", scale=scale)[-1, -1, -4:]
    return out
"""


@pytest.mark.parametrize(("past", "status"), [(4, Status.WRONG), (0, Status.OK)])
def test_eight_bytes_behind_out_are_seen(past: int, status: Status, tmp_path: Path) -> None:
    file = tmp_path / "writes_past_out.py"
    file.write_text(WRITES.replace("PAST", str(past)))
    found = longca.verify(file, **SHAPE)
    (guarded,) = [finding for finding in found.findings if finding.trial is TrialName.GUARDED]
    assert guarded.status is status, guarded.reason
    if status is Status.WRONG:
        assert guarded.reason.startswith("it writes behind the end of a tensor that it allocates")
        assert guarded.reason.endswith(": 8 bytes are changed")


@pytest.mark.slow
def test_all_kernels_of_this_machine_pass_the_trials_of_memory_and_of_later_calls() -> None:
    found = longca.verify(**SHAPE | {"seqlens": 1024, "heads": "8:2", "head_dims": 128})
    wanted = [finding for finding in found.findings if finding.trial in (TrialName.GUARDED, TrialName.LATER, None)]
    assert not [str(finding) + finding.reason for finding in wanted if finding.status in (Status.WRONG, Status.ERROR, Status.TIMEOUT)]
