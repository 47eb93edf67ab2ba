"""`fa4:joined` on a Hopper GPU: all masks through the check, its options, and long sequences against the library's own backward."""

from __future__ import annotations

import pytest
import torch

from longca import masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import reference
from longca.kernels import inputs, registry
from longca.kernels.backends.fa4._joined import Joining
from longca.kernels.backends.fa4._joined_layout import HEADS, WHOLE_HEADS
from longca.kernels.backends.fa4.kernel import Fa4
from longca.kernels.base import Case, Kernel, No
from longca.masks import AnyMask, Mask

pytestmark = pytest.mark.gpu

S = 1536  # a multiple of the queries of a tile
SMALL = {"sliding_window": {"w": 99}, "sliding_window_causal": {"w": 99}, "block_causal_document": {"B": 128}}


def supported(kernel: Kernel, mask: AnyMask, case: Case) -> Kernel:
    if isinstance(answer := registry.available(kernel, "cuda") and registry.supports(kernel, mask, case), No):
        pytest.skip(answer.reason)
    return kernel


def is_right(kernel: Kernel, mask: AnyMask, case: Case) -> None:
    verdict = check_kernel(supported(kernel, mask, case), kernel.prepare(mask, case), case, reference(mask, case))
    assert verdict.ok, verdict.reason


@pytest.mark.parametrize("name", masks.names())
def test_every_mask(name: str) -> None:
    mask = masks.build(name, S, seed=3, **SMALL.get(name, {}))
    is_right(Fa4("joined", joining=Joining(joined=8)), mask, Case(S, S, 16, 2, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("heads", [(8, 2), (12, 2), (8, 1)])
@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_heads_and_sizes(heads: tuple[int, int], dim: int, dtype: str) -> None:
    mask = masks.build("causal_document", S, seed=3)
    is_right(Fa4("joined", joining=Joining(joined=heads[0] // heads[1])), mask, Case(S, S, *heads, dim, dim, dtype, "cuda"))


@pytest.mark.parametrize("name", ["causal_document", "share_question", "sliding_window_causal"])
@pytest.mark.parametrize(
    "joining",
    [
        Joining(joined=2),
        Joining(joined=4, heavy_first=True),
        Joining(joined=1),
        Joining(joined=2, keys=64),
        Joining(joined=4, order=HEADS),
        Joining(joined=8, order=WHOLE_HEADS),
        Joining(joined=4, order=WHOLE_HEADS, documents_first=True),
    ],
)
def test_options(name: str, joining: Joining) -> None:
    mask = masks.build(name, S, seed=3, **SMALL.get(name, {}))
    is_right(Fa4("joined", joining=joining), mask, Case(S, S, 16, 2, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("keys", [S - 29, S + 512])
@pytest.mark.parametrize("seen", [0.5, 1.0])
def test_broken_key_tiles_and_keys_that_nobody_sees(keys: int, seen: float) -> None:
    mask = Mask.of(S, keys, [(0, S, 0, 0, int(seen * keys), 0)])
    is_right(Fa4("joined", joining=Joining(joined=8)), mask, Case(S, keys, 16, 2, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize("name", ["sliding_window_causal", "causal_document", "share_question"])
def test_long_sequences_agree_with_the_library(name: str) -> None:
    mask, case = masks.build(name, 32768, seed=3), Case(32768, 32768, 16, 2, 128, 128, "bf16", "cuda")
    numbers, results = inputs.make(case, 0, "LHD"), []
    for kernel in (Fa4("joined", joining=Joining(joined=8)), registry.get("fa4:bands")):
        attention = supported(kernel, mask, case).prepare(mask, case)
        q, k, v, dout = numbers[:4]
        results.append(attention.backward(dout, q, k, v, *attention.forward(q, k, v)))
    for gradient, other in zip(*results, strict=True):
        assert torch.isfinite(gradient).all()
        assert float((gradient.float() - other.float()).abs().max()) <= 0.01 * float(other.float().abs().max())
