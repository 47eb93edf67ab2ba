"""Eight ranks on one GPU, as threads, with a real kernel."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from longca import masks
from longca.kernels import registry as kernels
from longca.kernels.base import Case, No
from longca.masks import Mask
from longca.parallel import registry
from parallel.running import Results, case_of, plan_of, reference, rms, run_local

SEQLEN = 2000  # divides by nothing that matters
DOCUMENTS = {"causal": None, "share_question": (700, 500, 1, 799)}
TRIALS = [("ring_p2p", "causal"), *((method, "share_question") for method in registry.names())]


@lru_cache
def trial(name: str) -> tuple[Mask, Case, Results, Results]:
    """A mask and a case, what fp64 says, and what one rank says."""
    mask = masks.PATTERNS[name](SEQLEN, documents=DOCUMENTS[name])
    case = case_of(SEQLEN, (8, 2), "bf16", head_dim=128, device="cuda")
    return mask, case, Results(*(x.cpu() for x in reference(mask, case))), run_local(plan_of("ring_p2p", mask, case, 1, kernel="fa4"))


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "name"), TRIALS)
def test_eight_ranks_on_one_gpu_are_as_exact_as_one(method: str, name: str) -> None:
    answer = kernels.available(kernels.get("fa4"), "cuda")
    if isinstance(answer, No):
        pytest.skip(f"fa4 is not available: {answer.reason}.")
    mask, case, exact, alone = trial(name)
    many = run_local(plan_of(method, mask, case, 8, kernel="fa4"))
    for field in ("out", "lse", "dq", "dk", "dv"):
        wanted, one, eight = getattr(exact, field), getattr(alone, field), getattr(many, field)
        assert torch.isfinite(eight).all()
        assert rms(eight - wanted) <= 1.5 * rms(one - wanted) + 1e-6, field
