"""Heads: from tokens split over ranks to heads split over ranks, attention inside, and back."""

from __future__ import annotations

import itertools

import torch

from longca.kernels.base import Layout
from longca.parallel.comm.base import Comm, Transfer
from longca.parallel.head_split import HeadSplit
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.program import Gradients, Program, Saved
from longca.parallel.primitives.wire import swap

HeadRanges = tuple[tuple[int, int], ...]


class Heads(Program):
    """`lengths` are the tokens of each rank of `comm`; the inner program sees them one after the other, for this rank's heads."""

    def __init__(self, inner: Program, kernel: LocalKernel, comm: Comm, split: HeadSplit, lengths: list[int]) -> None:
        self.inner, self.kernel, self.comm, self.split = inner, kernel, comm, split
        self.layout: Layout = kernel.layout
        edges = [sum(lengths[:rank]) for rank in range(len(lengths) + 1)]
        self.spans = [slice(first, last) for first, last in itertools.pairwise(edges)]
        self.length, self.total = lengths[comm.rank], sum(lengths)
        self.rows, self.heads = inner.rows, inner.heads

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        queries, keys = self.split.queries, self.split.keys
        q_LHD, k_LHD, v_LHD = self.to_heads((q_LHD, queries), (k_LHD, keys), (v_LHD, keys))
        inner, saved = self.inner.forward(q_LHD, k_LHD, v_LHD, sinks_H)
        (out,) = self.to_tokens((inner, queries))
        return out, saved

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        (dout,) = self.to_heads((dout_LHD, self.split.queries))
        dq, dk, dv, *dsinks = self.inner.backward(dout, saved)
        dq, dk, dv = self.to_tokens((dq, self.split.queries), (dk, self.split.keys), (dv, self.split.keys))
        return dq, dk, dv, *dsinks

    def own_lse(self, saved: Saved) -> torch.Tensor | None:
        if saved.lse is None:
            return None
        (lse_LH1,) = self.to_tokens((saved.lse.T.unsqueeze(-1), self.split.queries))
        return lse_LH1.squeeze(-1).T

    def saved(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, out_LHD: torch.Tensor, lse_HL: torch.Tensor,
        sinks_H: torch.Tensor | None,
    ) -> Saved:  # fmt: skip
        queries, keys = self.split.queries, self.split.keys
        q, k, v, out = self.to_heads((q_LHD, queries), (k_LHD, keys), (v_LHD, keys), (out_LHD, queries))
        (lse_LH1,) = self.to_heads((lse_HL.T.unsqueeze(-1), queries))
        return Saved(q, k, v, out, lse_LH1.squeeze(-1).T.contiguous(), self.own_sinks(sinks_H))

    def to_heads(self, *tensors: tuple[torch.Tensor, HeadRanges]) -> list[torch.Tensor]:
        """All heads of my tokens become my heads of all tokens."""
        sends, receives, whole = [], [], []
        for x_LHD, heads in tensors:
            first, last = heads[self.comm.rank]
            whole.append(self.kernel.empty((self.total, last - first, x_LHD.shape[2]), x_LHD.dtype, "split"))
            sends += [(rank, x_LHD[:, slice(*heads[rank])]) for rank in range(self.comm.size)]
            receives += [(rank, whole[-1][span]) for rank, span in enumerate(self.spans)]
        swap(self.comm, self.layout, sends, receives).wait()
        return whole

    def to_tokens(self, *tensors: tuple[torch.Tensor, HeadRanges]) -> list[torch.Tensor]:
        """My heads of all tokens become all heads of my tokens; where several ranks have the same head, their parts are summed."""
        sends, receives, sums, own = [], [], list[_SharedHeads](), []
        for x_LHD, heads in tensors:
            count = heads[-1][1]
            own.append(self.kernel.empty((self.length, count, x_LHD.shape[2]), x_LHD.dtype, "joined"))
            sends += [(rank, x_LHD[span]) for rank, span in enumerate(self.spans)]
            sums.append(_SharedHeads(self.kernel, own[-1], heads))
            receives += [(rank, sums[-1].view_for(rank)) for rank in range(self.comm.size)]
        transfer: Transfer = swap(self.comm, self.layout, sends, receives)
        transfer.wait()
        for shared in sums:
            shared.add()
        return own


class _SharedHeads:
    """Where parts land: the first owner of a head writes into the result, further owners into buffers that are added in fp32."""

    def __init__(self, kernel: LocalKernel, own_LHD: torch.Tensor, heads: HeadRanges) -> None:
        self.kernel, self.own, self.heads = kernel, own_LHD, heads
        self.extra: dict[int, torch.Tensor] = {}

    def view_for(self, rank: int) -> torch.Tensor:
        first, last = self.heads[rank]
        if rank and self.heads[rank - 1] == (first, last):
            self.extra[rank] = self.kernel.empty((len(self.own), last - first, self.own.shape[2]), what="shared head")
            return self.extra[rank]
        return self.own[:, first:last]

    def add(self) -> None:
        for head in sorted({self.heads[rank] for rank in self.extra}):
            into = self.own[:, slice(*head)]
            total = into.to(self.kernel.accumulate)
            for rank, part in self.extra.items():
                if self.heads[rank] == head:
                    total = total + part.to(total.dtype)
            into.copy_(total)
