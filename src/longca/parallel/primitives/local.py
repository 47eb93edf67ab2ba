"""Attention on one rank: any kernel of LongCA, prepared once per distinct mask."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from longca.kernels import registry
from longca.kernels.base import Attention, BackwardKind, Case, Layout
from longca.kernels.inputs import DTYPES, in_layout
from longca.masks import AnyMask, Mask
from longca.parallel.comm.base import AttentionCall, Comm
from longca.parallel.cuts import Cut, cuts_of, tiles_touched
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.ranges import Ranges, Shards, cut, extent


class Prepared(NamedTuple):
    layout: Layout
    attention: Attention
    backward: BackwardKind


class LocalKernel:
    """A kernel by label, for the heads that this rank computes. All tensors are born in `layout`.

    `accumulate` is the type in which partial results are added up: fp32, except where a test shows what happens otherwise.
    """

    def __init__(self, label: str, case: Case, comm: Comm, accumulate: torch.dtype | None = None, merges: bool = True) -> None:
        self.label, self.comm, self.case = label, comm, replace(case, sinks=False)  # the merger adds them
        self.needs_lse = merges or case.backward
        self.dtype = DTYPES[case.dtype]
        self.accumulate = accumulate or torch.promote_types(self.dtype, torch.float32)
        self.chosen = registry.choices(label)[0]  # all kernels that the label may stand for have its layout and workspace
        self.layout: Layout = self.chosen.layout
        self._prepared: dict[tuple[str, Case], Prepared] = {}
        self.prepare_s = 0.0  # that the kernel took for all masks, compilation included

    @property
    def backward_kinds(self) -> set[BackwardKind]:
        """Of all that was prepared: a label may stand for several kernels."""
        return {prepared.backward for prepared in self._prepared.values()}

    def over(self, mask: AnyMask) -> Piece | None:
        """Attention under this mask, or None where nobody sees anything. Rows and keys at the edges that see nothing are cut off."""
        rows, keys = extent(mask)
        if rows.stop == rows.start:
            return None

        def make() -> AnyMask:
            return mask.rows([(rows.start, rows.stop)]).cols([(keys.start, keys.stop)])

        tiles = tiles_touched(mask) if self.comm.shapes_only else 0
        return Piece(self, Cut(mask.area // mask.heads, tiles, rows, keys, mask.seqlen_q, make))

    def over_shards(self, mask: AnyMask, rows: Shards, row_shard: int, keys: Shards, key_shards: Sequence[int]) -> list[Piece | None]:
        """`over` of the rows of one shard and the keys of several others, one by one. For shapes all ranks share one table of the cuts."""
        if self.comm.shapes_only and isinstance(mask, Mask):
            table = cuts_of(mask, rows, keys)
            return [None if (part := table.cut(row_shard, number)).is_empty else Piece(self, part) for number in key_shards]
        own = mask.rows(rows[row_shard])  # type: ignore[arg-type]  # arrays are ranges too
        return [self.over(own.cols(keys[number])) for number in key_shards]  # type: ignore[arg-type]

    def rows_over(self, mask: AnyMask, shards: Shards, row_shards: Sequence[int], key_shard: int) -> list[Piece | None]:
        """`over` of the rows of several shards, one by one, and the keys of one."""
        if self.comm.shapes_only and isinstance(mask, Mask):
            table = cuts_of(mask, shards, shards)
            return [None if (part := table.cut(number, key_shard)).is_empty else Piece(self, part) for number in row_shards]
        return [self.over(cut(mask, shards[number], shards[key_shard])) for number in row_shards]

    def prepare(self, cut: Cut) -> Prepared:
        if self.comm.shapes_only:
            return Prepared(self.layout, ShapesOnly(self), "functional")
        return self.prepare_mask(cut.make())

    def prepare_mask(self, mask: AnyMask) -> Prepared:
        """The kernel prepared for a mask; one that was prepared before is used again."""
        case = replace(self.case, seqlen_q=mask.seqlen_q, seqlen_k=mask.seqlen_k)
        key = (mask.digest, case)
        if key not in self._prepared:
            start = time.perf_counter()
            chosen, attention = registry.prepare(registry.choose(self.label, mask, case), mask, case)
            self.prepare_s += time.perf_counter() - start
            self._prepared[key] = Prepared(chosen.layout, attention, chosen.backward)
        return self._prepared[key]

    def empty(self, shape_LHD: Sequence[int], dtype: torch.dtype | None = None, what: str = "") -> torch.Tensor:
        """A buffer, logically [L, H, D], in this kernel's memory order."""
        length, heads, size = shape_LHD
        if self.layout == "LHD":
            return self.comm.empty((length, heads, size), dtype or self.dtype, what)
        return self.comm.empty((heads, length, size), dtype or self.dtype, what).transpose(0, 1)


class Piece:
    """Attention of some rows over some keys, both a slice of what the caller has."""

    def __init__(self, kernel: LocalKernel, cut: Cut) -> None:
        self.kernel, self.cut, self.rows, self.keys = kernel, cut, cut.rows, cut.keys
        self.whole_rows = cut.rows.stop - cut.rows.start == cut.length
        self.comm, self.case = kernel.comm, kernel.case
        self.layout, self.attention, kind = kernel.prepare(cut)
        self.needs_graph = kind == "autograd" and self.case.backward

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        self._note(backward=False)
        return self.attention.forward(self._cut(q, self.rows), self._cut(k, self.keys), self._cut(v, self.keys))

    def backward(
        self, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor | None
    ) -> Gradients:
        """dq of `rows`, dk and dv of `keys`."""
        self._note(backward=True)
        dout, q, out = (self._cut(x, self.rows) for x in (dout, q, out))
        lse = lse if self.whole_rows or lse is None else lse[:, self.rows].contiguous()
        return self.attention.backward(dout, q, self._cut(k, self.keys), self._cut(v, self.keys), out, lse)

    def backward_of_graph(self, dout: torch.Tensor, saved: Saved) -> Gradients:
        """The gradients of everything that forward was called with: its graph goes through the cuts."""
        self._note(backward=True)
        return self.attention.backward(dout, *saved[:5])

    def _cut(self, x_LHD: torch.Tensor, part: slice) -> torch.Tensor:
        return in_layout(x_LHD[part], self.layout)

    def _note(self, backward: bool) -> None:
        if not self.comm.shapes_only:
            return
        case, cut, rows, keys = self.case, self.cut, self.rows.stop - self.rows.start, self.keys.stop - self.keys.start
        shape = (case.heads_q, case.heads_kv, case.head_dim, case.head_dim_v, case.dtype)
        self.comm.note_attention(
            AttentionCall(backward, cut.area, rows, keys, *shape, cut.tiles, self.kernel.label, self.kernel.needs_lse, cut.make)
        )


class ShapesOnly(Attention):
    """Stands in for a kernel where only shapes matter."""

    def __init__(self, kernel: LocalKernel) -> None:
        self.kernel = kernel

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        length, heads, _ = q_LHD.shape
        lse_type = torch.promote_types(q_LHD.dtype, torch.float32)
        return self.kernel.empty((length, heads, v_LHD.shape[2]), what="out"), self.kernel.comm.empty((heads, length), lse_type, "lse")

    def backward(
        self,
        dout_LHD: torch.Tensor,
        q_LHD: torch.Tensor,
        k_LHD: torch.Tensor,
        v_LHD: torch.Tensor,
        out_LHD: torch.Tensor,
        lse_HL: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        dq, dk, dv = (self.kernel.empty(x.shape, what="gradient") for x in (q_LHD, k_LHD, v_LHD))
        case = replace(self.kernel.case, seqlen_q=len(q_LHD), seqlen_k=len(k_LHD))
        self.kernel.comm.empty((self.kernel.chosen.workspace(case),), torch.uint8, "workspace")  # alive for this moment
        return dq, dk, dv


class Local(Program):
    """All rows over all keys on one rank: what is inside split heads when there is no ring."""

    def __init__(self, kernel: LocalKernel, mask: AnyMask, rows: Ranges, heads: tuple[int, int]) -> None:
        self.kernel, self.rows, self.heads = kernel, rows, heads
        self.piece = kernel.over(cut(mask, rows, rows))

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        sinks = self.own_sinks(sinks_H)
        if self.piece is None or not self.piece.needs_graph:
            return self._forward(q_LHD, k_LHD, v_LHD, sinks)
        with torch.enable_grad():  # inside an autograd function there is no graph else
            q_LHD, k_LHD, v_LHD = (x.detach().requires_grad_() for x in (q_LHD, k_LHD, v_LHD))
            out, saved = self._forward(q_LHD, k_LHD, v_LHD, sinks)
        return out.detach(), saved if saved.lse is None else saved._replace(lse=saved.lse.detach())

    def _forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None
    ) -> tuple[torch.Tensor, Saved]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        if self.piece is not None:
            merger.add(self.piece.rows, *self.piece.forward(q_LHD, k_LHD, v_LHD))
        out, lse = merger.result(sinks_H)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse, sinks_H)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        if self.piece is not None and self.piece.needs_graph:
            return with_sinks(self.piece.backward_of_graph(dout_LHD, saved), dout_LHD, saved)
        dq, dk, dv = (Total(self.kernel, x.shape) for x in saved[:3])
        if self.piece is not None:
            parts = self.piece.backward(dout_LHD, *saved[:5])
            for total, part, where in zip((dq, dk, dv), parts, (self.piece.rows, self.piece.keys, self.piece.keys), strict=True):
                total.add(where, part)
        return with_sinks((dq.result(), dk.result(), dv.result()), dout_LHD, saved)
