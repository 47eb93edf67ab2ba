"""Block-sparse kernels on a GPU: every one that is installed, on every kind of block, as `longca verify` would check it."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.stand_ins import checked_on_gpu
from longca import masks
from longca.kernels import block_selection
from longca.kernels.base import Case

pytestmark = pytest.mark.gpu

KERNELS = ("block_triton", "flex", "fa4:blocks", "cudnn_bsa", "vsa", "vsa_triton", "flashinfer")
PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "64": ("uniform_block", {"b": 64, "ratio": 0.3}),
    "128": ("uniform_block", {"b": 128, "ratio": 0.3}),
    "variable": ("variable_block", {"avg": 256, "ratio": 0.5}),
    "small variable": ("variable_block", {"avg": 90, "least": 3, "ratio": 0.5}),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("heads", [(8, 2), (3, 3)])
@pytest.mark.parametrize("length", [2048, 1999])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_right_on_a_gpu(kernel: str, pattern: str, length: int, heads: tuple[int, int], backward: bool) -> None:
    name, params = PATTERNS[pattern]
    mask = masks.build(name, length, seed=5, heads=heads[1], **params)
    _check(kernel, mask, Case(length, length, *heads, 128, 128, "bf16", "cuda", backward=backward))


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("heads", [(8, 2), (6, 2), (3, 3)])
@pytest.mark.parametrize("length", [2048, 1999])
@pytest.mark.parametrize("kernel", ["block_triton", "flex", "fa4:blocks"])
def test_one_pattern_for_all_heads(kernel: str, length: int, heads: tuple[int, int], backward: bool) -> None:
    """Query heads of a group may then share a tile: fa4:blocks packs them."""
    mask = masks.build("uniform_block", length, seed=5, heads=1, b=128, ratio=0.3)
    _check(kernel, mask, Case(length, length, *heads, 128, 128, "bf16", "cuda", backward=backward))


@pytest.mark.parametrize("source", ["nsa", "moba"])
@pytest.mark.parametrize("heads", [(8, 2), (3, 3)])
@pytest.mark.parametrize("length", [2048, 1999])
@pytest.mark.parametrize("pattern", ["64", "128", "variable"])
@pytest.mark.parametrize("kernel", ["block_triton", "flex", "fa4:blocks"])
def test_selected_blocks_with_a_causal_mask_on_top(kernel: str, pattern: str, length: int, heads: tuple[int, int], source: str) -> None:
    name, params = PATTERNS[pattern]
    mask = block_selection.build(name, length, source, block_selection.Heads(*heads, 128), seed=5, **params)
    _check(kernel, mask, Case(length, length, *heads, 128, 128, "bf16", "cuda"))


@pytest.mark.parametrize(
    ("dtype", "dims"), [("fp16", (64, 64)), ("fp32", (64, 64)), ("bf16", (128, 64)), ("bf16", (256, 256)), ("fp16", (16, 32))]
)
def test_other_shapes_of_our_kernel(dtype: str, dims: tuple[int, int]) -> None:
    for name, params in PATTERNS.values():
        mask = masks.build(name, 1000, seed=2, heads=2, **params)
        _check("block_triton", mask, Case(1000, 1000, 6, 2, *dims, dtype, "cuda"))


def _check(kernel: str, mask: Any, case: Case) -> None:
    verdict = checked_on_gpu(kernel, mask, case)
    if kernel == "vsa_triton" and case.backward:  # it rounds the scaled keys to bf16
        assert verdict.reason.startswith("only on data with loud edges and large numbers: dq is off")
        return
    assert verdict.ok, verdict.reason
    assert ("dq" in verdict.errors) == case.backward
