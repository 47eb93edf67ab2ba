"""Our block-sparse kernel: what it refuses, what it tunes, and, in a process that starts as Triton's interpreter, its numbers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from longca import masks
from longca.bench.check.trial_names import trials_on
from longca.kernels.backends.block_triton._launch import Launcher
from longca.kernels.backends.block_triton.kernel import BlockTriton, candidates
from longca.kernels.base import Case, No

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="this test needs triton, which exists for Linux only")


PARTS = (
    "right and not variable and (nothing or grouped)",  # a causal mask on top: of some shapes, of the others below
    "right and variable and (nothing or grouped)",
    "right and causal and not grouped",
    "not right",
)


@pytest.mark.slow
@needs_triton
@pytest.mark.parametrize("part", PARTS)
def test_in_the_interpreter(part: str) -> None:
    inner = Path(__file__).with_name("block_triton_interpreted.py")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", str(inner), "-k", part]
    done = subprocess.run(
        command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.slow
@needs_triton
def test_verify_checks_block_masks_with_a_pattern_per_kv_head() -> None:
    words = (
        "-m longca verify --kernels block_triton --masks uniform_block,variable_block --seqlens 150 --heads 4:2 --head-dim 16 --device cpu"
    )
    command = [sys.executable, *words.split()]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = "unsupported: block_triton on trial: rows without keys: block_triton takes block patterns, not masks made of bands"
    skipped, tried = "skipped: block_triton on trial: capped scores: a kernel need not support this", len(trials_on("cpu"))
    counts = dict(reversed(count.split()) for count in done.stdout.splitlines()[-1].split(", "))
    assert done.stdout.splitlines()[-3:-1] == [refused, skipped]
    assert counts == {"ok": f"{2 + tried - 2}", "skipped": "1", "unsupported": "1"}


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
