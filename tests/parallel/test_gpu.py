"""Eight ranks on one GPU, as threads, with a real kernel."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest
import torch

from longca import masks
from longca.kernels import registry as kernels
from longca.kernels.base import Case, No
from longca.masks import AnyMask
from longca.parallel import registry
from parallel.running import STATIC, Results, case_of, plan_of, reference, rms, run_local

SEQLEN = 2000  # divides by nothing that matters
SETTINGS: dict[str, dict[str, Any]] = {
    "causal": {},
    "share_question": {"documents": (700, 500, 1, 799)},
    "uniform_block": {"b": 128, "ratio": 0.3, "heads": 2},
}
# FA4 compiles about 20 kernels for all of these, most of them for the first case of each mask. Where its cache is kept on disk
# (FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1) it does so once for all processes, so that `-n 6` shares the work.
CASES = [
    *((method, "share_question") for method in STATIC),
    *((method, "uniform_block") for method in registry.names() if not registry.get(method).no_blocks),
    ("ring_p2p", "causal"),
]


@lru_cache
def expected(name: str) -> tuple[AnyMask, Case, Results, Results]:
    """A mask and a case, what fp64 says, and what one rank says."""
    mask = masks.build(name, SEQLEN, **SETTINGS[name])
    case = case_of(SEQLEN, (8, 2), "bf16", head_dim=128, device="cuda")
    alone = run_local(plan_of("ring_allgather", mask, case, 1, kernel="fa4"))
    return mask, case, Results(*(x if x is None else x.cpu() for x in reference(mask, case))), alone


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "name"), CASES)
def test_eight_ranks_on_one_gpu_are_as_exact_as_one(method: str, name: str) -> None:
    answer = kernels.available(kernels.get("fa4"), "cuda")
    if isinstance(answer, No):
        pytest.skip(f"fa4 is not available: {answer.reason}.")
    mask, case, exact, alone = expected(name)
    for options in ({}, {"node": 4}) if method in ("magi", "block_cast") else ({},):
        many = run_local(plan_of(method, mask, case, 8, kernel="fa4", options=options))
        for field in ("out", "lse", "dq", "dk", "dv"):
            wanted, one, eight = getattr(exact, field), getattr(alone, field), getattr(many, field)
            assert torch.isfinite(eight).all()
            assert rms(eight - wanted) <= 1.5 * rms(one - wanted) + 1e-6, field
