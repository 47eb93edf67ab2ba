"""Our block-sparse kernel: what it refuses, what it tunes, and, in a process that starts as Triton's interpreter, its numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from longca import masks
from longca.kernels.backends.block_triton._launch import Launcher
from longca.kernels.backends.block_triton._lists import lists, pattern, under_diagonal
from longca.kernels.backends.block_triton.kernel import BlockTriton, candidates
from longca.kernels.base import Case, No
from longca.masks import BlockMask

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="this test needs triton, which exists for Linux only")


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("part", ["right", "not right"])
def test_in_the_interpreter(part: str) -> None:
    inner = Path(__file__).with_name("block_triton_interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", str(inner), "-k", part]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize(
    ("case", "reason"), [(Case(256, 256, 2, 2, 192, 128), "head size"), (Case(256, 256, 2, 2, 64, 64, "fp64"), "fp64")]
)
def test_refusals(case: Case, reason: str) -> None:
    answer = BlockTriton().supports(masks.uniform_block(256, heads=2), case)
    assert isinstance(answer, No)
    assert reason in answer.reason


@pytest.mark.parametrize("group", [1, 2, 3, 6, 8])
@pytest.mark.parametrize(
    ("name", "params"), [("uniform_block", {"b": 64}), ("uniform_block", {"b": 128}), ("variable_block", {"avg": 256})]
)
def test_candidates_pack_heads_of_one_group_and_fill_the_tensor_cores(name: str, params: dict[str, float], group: int) -> None:
    mask, case = masks.build(name, 4096, heads=2, **params), Case(4096, 4096, 2 * group, 2, 128, 128)
    for step in ("forward", "dq", "dkv"):
        for shape in candidates(mask, case, step):
            assert group % shape.pack == 0
            assert (shape.keys if step == "dkv" else shape.rows * shape.pack) >= 64
            assert shape.rows * shape.pack * shape.keys <= 64 * shape.warps * 128  # what registers can hold


@pytest.mark.parametrize("tile", [16, 64, 128])
@pytest.mark.parametrize("tiles_are_rows", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_lists_hold_every_visible_pair_once(causal: bool, tiles_are_rows: bool, tile: int) -> None:
    """Whole tiles are all visible, and below a diagonal short ones are visible in part."""
    drawn = masks.build("variable_block", 400, seed=5, heads=2, avg=60, least=9, ratio=0.5)
    mask = BlockMask(drawn.row_edges, drawn.col_edges, drawn.kept, band=masks.causal(400) if causal else None)
    kept, row_edges, col_edges = pattern(mask, "cpu")
    own, other = (col_edges, row_edges) if tiles_are_rows else (row_edges, col_edges)
    made = lists(kept.transpose(1, 2) if tiles_are_rows else kept, other, tile)
    if causal:
        made = under_diagonal(made, own, tile, tiles_are_rows=tiles_are_rows)
    right = mask.dense().transpose(0, 2, 1) if tiles_are_rows else mask.dense()
    seen = np.zeros((2, 400, 400), int)
    for number in range(2 * (len(own) - 1)):
        head, block = divmod(number, len(own) - 1)
        rows = slice(int(own[block]), int(own[block + 1]))
        for start in made.whole_start[made.whole_ptr[number] : made.whole_ptr[number + 1]].tolist():
            seen[head, rows, start : start + tile] += 1
        short = slice(made.short_ptr[number], made.short_ptr[number + 1])
        for start, count in zip(made.short_start[short].tolist(), made.short_count[short].tolist(), strict=True):
            assert right[head, rows, start : start + count].any()
            assert causal or count < tile
            seen[head, rows, start : start + count] += right[head, rows, start : start + count] if causal else 1
    assert np.array_equal(seen, right)


class LargestTensor(TorchDispatchMode):
    """The elements of the largest tensor that anything makes."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return made


@needs_triton
@pytest.mark.parametrize("name", ["uniform_block", "variable_block"])
def test_lists_are_as_long_as_there_are_blocks_and_never_queries_times_keys(name: str) -> None:
    seqlen, heads = 16 << 10, 2
    mask = masks.build(name, seqlen, heads=heads, ratio=0.5)
    case = Case(seqlen, seqlen, 4, heads, 128, 128, "bf16")
    with LargestTensor() as largest:
        launcher = Launcher(mask, case)
        for step in ("forward", "dq", "dkv"):
            launcher.lower(step, candidates(mask, case, step)[0])
    tiles = heads * (seqlen // 16) * (seqlen // 64)  # of the smallest query tile and the smallest key tile
    assert mask.kept.size <= largest.elements <= tiles < heads * seqlen**2 / 1000
