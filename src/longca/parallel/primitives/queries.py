"""Queries: ranks gather their queries, attend with all of them to some of the keys, and give results back, merged by lse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from longca.parallel.comm.base import Comm
from longca.parallel.primitives.delta import delta_of, out_of
from longca.parallel.primitives.gather import GatherScatter
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Merger
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Shards

if TYPE_CHECKING:
    from longca.parallel.method import Plan


class Queries(Program):
    """`shards` are the queries of each rank of `comm`; the inner program has all of them, in order, and the ranks of `comm` together have
    all keys."""

    def __init__(self, inner: Program, kernel: LocalKernel, comm: Comm, shards: Shards, crosses_nodes: bool = False) -> None:
        self.inner, self.kernel, self.comm = inner, kernel, comm
        self.rows, self.heads = shards[comm.rank], inner.heads
        self.collective = GatherScatter(kernel, comm, shards, crosses_nodes)
        self.row_type = torch.promote_types(kernel.dtype, torch.float32)  # of lse and delta

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        (q,) = self.collective.gathered(q_LHD)
        part, saved = self.inner.forward(q, k_LHD, v_LHD)
        sinks = self.own_sinks(sinks_H)
        out, lse = self.merged(part, saved, Merger(self.kernel, q_LHD, v_LHD), sinks)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        assert saved.lse is not None  # kernels without it are refused
        delta_HL = delta_of(saved.out, dout_LHD, self.row_type)
        q, dout, lse, delta = self.collective.gathered(saved.q, dout_LHD, saved.lse.T, delta_HL.T)
        whole = Saved(q, saved.k, saved.v, out_of(dout, delta.T), lse.T.contiguous())
        dq, dk, dv = self.inner.backward(dout, whole)
        (dq_own,) = self.collective.scattered(dq)
        return with_sinks((dq_own, dk, dv), dout_LHD, saved)

    def merged(
        self, part_LHD: torch.Tensor, saved: Saved, merger: Merger, sinks: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Returns this rank's rows of the result, merged in fp32 from the attention of every rank over its keys."""
        assert saved.lse is not None
        outs, lses = self.collective.by_rank(part_LHD), self.collective.by_rank(saved.lse.T)
        mine = outs[self.comm.rank].shape, lses[self.comm.rank].shape
        buffers = [[self.comm.empty(mine[0], part_LHD.dtype, "parts"), self.comm.empty(mine[1], self.row_type, "parts")] for _ in outs]
        self.comm.all_to_all([list(pair) for pair in zip(outs, lses, strict=True)], buffers).wait()
        for out, lse in buffers:
            merger.add(slice(0, len(out)), out, lse.T.contiguous())
        out, merged_lse = merger.result(sinks)
        return take_rows(out, None, self.kernel.layout), merged_lse

    def work(self, plan: Plan) -> int:
        return self.inner.work(plan)
