"""Launching block_triton's kernels: a step (forward, dq or dkv) with tiles of a given shape on one block pattern."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Case
from longca.masks import BlockMask

if TYPE_CHECKING:
    import torch

    from longca.kernels.backends.block_triton._lists import Lists, Tiles


def interpreted() -> bool:
    """Whether Triton runs kernels in its interpreter; it decides that when it is imported."""
    return os.environ.get("TRITON_INTERPRET", "0") == "1"


@dataclass(frozen=True)
class Shape:
    """A tile and how it is launched. `pack` query heads of a group share a tile, which then has rows * pack places."""

    rows: int
    pack: int
    keys: int
    warps: int
    stages: int


class Launcher:
    """Launches kernels on one block pattern; makes work lists when a shape first needs them, and keeps them."""

    def __init__(self, mask: BlockMask, case: Case) -> None:
        from longca.kernels.backends.block_triton import _lists

        self.mask, self.case, self.tma = mask, case, _has_tma(case)
        kept, row_edges, col_edges = _lists.pattern(mask, case.device)
        self._keys_of_rows, self._rows_of_keys = (kept, col_edges), (kept.transpose(1, 2).contiguous(), row_edges)
        self._work: dict[tuple[str, int, int], tuple[Tiles, Lists]] = {}

    def settle(self, shapes: Mapping[str, Shape]) -> None:
        """Frees all memory but the work lists of these shapes; no other shape can be launched afterwards."""
        keys = [self._key(step, shape) for step, shape in shapes.items()]
        self._work = {key: work for key, work in self._work.items() if key in keys}
        del self._keys_of_rows, self._rows_of_keys

    def launch(self, step: str, shape: Shape, tensors: tuple[torch.Tensor, ...]) -> None:
        from longca.kernels.backends.block_triton import _kernels as kernels

        case, (tiles, lists) = self.case, self.lower(step, shape)
        scales: tuple[float, ...] = (case.softmax_scale * float(np.log2(np.e)),)
        grid_heads, blocks = case.heads_q // shape.pack, len(self.mask.row_edges) - 1
        options: dict[str, Any] = {"PACK": shape.pack}
        if step != "forward":
            scales = (case.softmax_scale, *scales)
        if step == "dkv":
            grid_heads, blocks, options = case.heads_kv, len(self.mask.col_edges) - 1, {}
        getattr(kernels, f"{step}_kernel")[(len(tiles.start), grid_heads)](
            *self._described(step, shape, tensors),
            *tiles.arguments,
            *lists.arguments,
            *scales,
            case.seqlen_q,
            blocks,
            HEADS_Q=case.heads_q,
            HEADS_KV=case.heads_kv,
            PATTERNS=self.mask.heads,
            ROWS=shape.rows,
            KEYS=shape.keys,
            D=case.head_dim,
            DV=case.head_dim_v,
            ALL_WHOLE=lists.all_whole,
            CAUSAL=self.mask.band is not None,
            TMA=self.tma,
            PRECISION="upcast" if interpreted() else "ieee",
            num_warps=shape.warps,
            num_stages=shape.stages,
            **options,
        )

    def _described(self, step: str, shape: Shape, tensors: tuple[torch.Tensor, ...]) -> list[Any]:
        """Returns the tensors; those that loops read (k and v, or q and dout for dkv) as descriptors over [tokens, heads * D]."""
        if not self.tma:
            return list(tensors)
        from triton.tools.tensor_descriptor import TensorDescriptor

        streamed, tile = ((0, 3), shape.rows) if step == "dkv" else ((1, 2), shape.keys)
        return [TensorDescriptor.from_tensor(x.flatten(1), [tile, x.shape[2]]) if i in streamed else x for i, x in enumerate(tensors)]

    def _key(self, step: str, shape: Shape) -> tuple[str, int, int]:
        return ("rows", shape.keys, shape.rows) if step == "dkv" else ("keys", shape.rows, shape.keys)

    def lower(self, step: str, shape: Shape) -> tuple[Tiles, Lists]:
        """Returns the tiles that a step writes and the lists it reads."""
        from longca.kernels.backends.block_triton import _lists
        from longca.kernels.lower import upload

        key = self._key(step, shape)
        if key not in self._work:
            edges, pattern = (self.mask.col_edges, self._rows_of_keys) if step == "dkv" else (self.mask.row_edges, self._keys_of_rows)
            lists = _lists.lists(*pattern, key[2])
            if self.mask.band is not None:
                own_edges = upload(edges, self.case.device)
                lists = _lists.under_diagonal(lists, own_edges, key[2], tiles_are_rows=step == "dkv")
            self._work[key] = _lists.tiles(edges, key[1], self.case.device), lists
        return self._work[key]

    def samples(self, step: str) -> tuple[torch.Tensor, ...]:
        """Returns tensors for timing a step."""
        import torch

        from longca.kernels import inputs

        q, k, v, dout = inputs.make(replace(self.case, numbers=""))
        lse = torch.zeros(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
        if step == "forward":
            return q, k, v, dout.clone(), lse
        gradients = (torch.empty_like(q),) if step == "dq" else (torch.empty_like(k), torch.empty_like(v))
        return q, k, v, dout, lse + 10, torch.zeros_like(lse), *gradients


def _has_tma(case: Case) -> bool:
    """Whether there are tensor descriptors: on Hopper and later, where the installed Triton can make them on the host."""
    if case.device == "cpu" or case.dtype == "fp32":
        return False
    import torch

    try:
        from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.get_device_capability() >= (9, 0)
