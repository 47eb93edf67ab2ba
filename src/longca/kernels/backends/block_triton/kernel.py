"""LongCA's own block-sparse attention in Triton: uniform and variable blocks, one pattern per KV head, forward and backward.

The shapes of the tiles are chosen by timing a few candidates, once per process and kind of work.
"""

from __future__ import annotations

import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.backends.block_triton._launch import Launcher, Shape, interpreted
from longca.kernels.base import Answer, Attention, Case, Kernel, Preference, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_pattern
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients

HEAD_DIMS = (16, 32, 64, 128, 256)
WARMUP_S, ROUNDS = 0.1, 3  # of the candidates for a tile


class BlockTriton(Kernel):
    name = "block_triton"
    about = "LongCA's own block-sparse attention in Triton; on a CPU with TRITON_INTERPRET=1"
    needs = "triton"
    modules = ("triton",)
    preference = Preference(cuda=60)
    tested = "CPU interpreter, H200"

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.devices = ("cpu", "cuda") if interpreted() else ("cuda",)

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        return first_refusal(
            refuse_shapes(case, dtypes=("bf16", "fp16", "fp32"), dims=HEAD_DIMS), refuse_pattern(mask, case, on_top="causal")
        )

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return BlockAttention(mask, case)


def candidates(mask: BlockMask, case: Case, step: str) -> list[Shape]:
    """Returns the shapes to time for "forward", "dq" or "dkv": those that were fast on an H200.

    Where tiles lie is read from lists, and Triton gives every second stage to that: 3 stages hold two tiles, 5 hold three.
    """
    sizes = [np.diff(edges)[:-1] for edges in (mask.row_edges, mask.col_edges)]  # the last block may be any shorter
    smallest = int(min(size.min(initial=1024) for size in sizes))
    wide, single = max(case.head_dim, case.head_dim_v) > 128, case.dtype == "fp32"
    if wide or single:  # one shape that fits into shared memory
        side, pack = 32 if wide and single else 64, min(case.group & -case.group, 4)
        return [Shape(side, 1, side, 8, 2) if step == "dkv" else Shape(64 // pack, pack, 32 if single else 64, 8, 2)]
    if step == "dkv":
        shapes = [Shape(64, 1, 64, 4, 2), Shape(64, 1, 64, 4, 4), Shape(32, 1, 64, 4, 5)]
        return shapes + ([Shape(64, 1, 128, 8, 5)] if smallest >= 128 else [])
    rows, pack = _query_tile(case.group, smallest, uniform=len(set(sizes[0])) <= 1)
    if rows * pack < 128:
        return [Shape(rows, pack, 64, 4, 2), Shape(rows, pack, 64, 4, 5)]
    if step == "dq":
        return [Shape(rows, pack, 64, 8, 5), Shape(rows, pack, 64, 4, 2)]
    return [Shape(rows, pack, 64, 4, 2), Shape(rows, pack, 64, 4, 3), Shape(rows, pack, 64, 8, 5)]


def _query_tile(group: int, smallest: int, uniform: bool) -> tuple[int, int]:
    """Returns (rows, heads) of a query tile: 128 places, or 64 where neither the block nor the group has more."""
    most = group & -group  # packs are powers of two that divide the group
    rows = 64 if uniform else 16  # variable blocks end anywhere: short tiles waste less at their end
    pack = min(most, 128 // rows)
    if uniform and pack == 1 and smallest >= 128:
        return 128, 1
    return max(rows, 64 // pack), pack


_best: dict[tuple[Any, ...], Shape] = {}


class BlockAttention(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        self._launcher = Launcher(mask, case)
        self.shapes = {step: _fastest(self._launcher, step) for step in (("forward", "dq", "dkv") if case.backward else ("forward",))}
        for step, shape in self.shapes.items():
            self._launcher.lower(step, shape)
        self._launcher.settle(self.shapes)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        q, k, v = (x.contiguous() for x in (q_LHD, k_LHD, v_LHD))
        out = q.new_empty(*q.shape[:2], v.shape[2])
        lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
        self._launcher.launch("forward", self.shapes["forward"], (q, k, v, out, lse))
        return out, lse

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        import torch

        from longca.kernels.backends.block_triton._kernels import delta_kernel

        assert lse_HL is not None
        q, k, v, out, dout, lse = (x.contiguous() for x in (q_LHD, k_LHD, v_LHD, out_LHD, dout_LHD, lse_HL))
        dq, dk, dv, delta = (torch.empty_like(x) for x in (q, k, v, lse))
        tokens, heads, size = out.shape
        delta_kernel[(-(-tokens // 64), heads)](out, dout, delta, tokens, heads, 64, size)
        self._launcher.launch("dq", self.shapes["dq"], (q, k, v, dout, lse, delta, dq))
        self._launcher.launch("dkv", self.shapes["dkv"], (q, k, v, dout, lse, delta, dk, dv))
        return dq, dk, dv


def _fastest(launcher: Launcher, step: str) -> Shape:
    """Returns the fastest candidate; candidates are timed once per process and kind of work."""
    mask, case = launcher.mask, launcher.case
    shapes = candidates(mask, case, step)
    if case.device == "cpu" or len(shapes) == 1:
        return shapes[0]
    kind = (step, *shapes, case.heads_q, case.heads_kv, case.head_dim, case.head_dim_v, case.dtype, round(mask.density, 1))
    if kind not in _best:
        tensors = launcher.samples(step)
        _best[kind] = _race([shape for shape in shapes if _fits(launcher, step, shape, tensors)] or shapes, launcher, step, tensors)
    return _best[kind]


def _fits(launcher: Launcher, step: str, shape: Shape, tensors: tuple[torch.Tensor, ...]) -> bool:
    """Whether a shape fits into shared memory; compiles it, too."""
    from triton.runtime.errors import OutOfResources

    try:
        launcher.launch(step, shape, tensors)
    except OutOfResources:
        return False
    return True


def _race(shapes: list[Shape], launcher: Launcher, step: str, tensors: tuple[torch.Tensor, ...]) -> Shape:
    """Returns the shape with the least median time. Shapes run in turns on a device that is already under load, as clocks drop some time
    after a load begins, whichever shape runs then."""
    import torch

    until, rounds = time.perf_counter() + WARMUP_S, list[list[float]]()
    while time.perf_counter() < until or len(rounds) < ROUNDS:
        events = [torch.cuda.Event(enable_timing=True) for _ in range(len(shapes) + 1)]
        events[0].record()
        for shape, event in zip(shapes, events[1:], strict=True):
            launcher.launch(step, shape, tensors)
            event.record()
        events[-1].synchronize()
        rounds.append([float(before.elapsed_time(after)) for before, after in pairwise(events)])
    medians = [median(times) for times in zip(*rounds[-ROUNDS:], strict=True)]
    return shapes[medians.index(min(medians))]
