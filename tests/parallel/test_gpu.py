"""Eight ranks on one GPU, as threads, with a real kernel."""

from __future__ import annotations

import pytest
import torch

from longca import masks
from longca.kernels import registry as kernels
from longca.kernels.base import No
from longca.parallel import registry
from parallel.running import Results, case_of, plan_of, reference, rms, run_local

SEQLEN = 2000  # divides by nothing that matters


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["causal", "share_question"])
@pytest.mark.parametrize("method", registry.names())
def test_eight_ranks_on_one_gpu_are_as_exact_as_one(method: str, name: str) -> None:
    answer = kernels.available(kernels.get("fa4"), "cuda")
    if isinstance(answer, No):
        pytest.skip(f"fa4 is not available: {answer.reason}.")
    documents = [700, 500, 1, 799] if name == "share_question" else None
    mask = masks.find(name)(SEQLEN, documents=documents)
    case = case_of(SEQLEN, (8, 2), "bf16", head_dim=128, device="cuda")
    exact = Results(*(x.cpu() for x in reference(mask, case)))
    alone, many = (run_local(plan_of(method, mask, case, ranks, kernel="fa4")) for ranks in (1, 8))
    for field in ("out", "lse", "dq", "dk", "dv"):
        wanted, one, eight = getattr(exact, field), getattr(alone, field), getattr(many, field)
        assert torch.isfinite(eight).all()
        assert rms(eight - wanted) <= 1.5 * rms(one - wanted) + 1e-6, field
