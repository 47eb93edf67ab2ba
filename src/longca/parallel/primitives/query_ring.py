"""QueryRing: keys travel forward, queries backward: q, dout, lse and delta, and dq is added up on the way. dk and dv stay at home."""

from __future__ import annotations

import torch

from longca.masks import AnyMask
from longca.parallel.comm.base import Comm
from longca.parallel.primitives.delta import delta_of, out_of
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Total
from longca.parallel.primitives.program import Gradients, Saved, with_sinks
from longca.parallel.primitives.ring import Block, DoubleRing, RingGradients, travels
from longca.parallel.primitives.ring_schedule import query_rounds_of
from longca.parallel.ranges import Shards


class QueryRing(DoubleRing):
    """In backward the block of a rank is its queries; it goes as far as there are keys that they see."""

    def __init__(self, kernel: LocalKernel, comm: Comm, mask: AnyMask, shards: Shards, heads: tuple[int, int], windows: int = 1) -> None:
        super().__init__(kernel, comm, mask, shards, heads, windows)
        self.query_visits = query_rounds_of(mask, shards, windows).visits(comm.rank)
        self.query_pieces = kernel.rows_over(mask, shards, [visit.owner for visit in self.query_visits], comm.rank)
        self.row_type = torch.promote_types(kernel.dtype, torch.float32)  # of lse and delta

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in saved[:3])
        sums = RingGradients(self, (dq,), self.query_gradients)
        for visit, piece, block in self.travel(self.query_visits, self.query_pieces, self.packed_queries(dout_LHD, saved), self.queries):
            if piece is not None and block is not None:
                q, dout, lse, delta = block.parts
                out = saved.out if visit.owner == self.comm.rank else out_of(dout, delta)
                dq_part, *parts = piece.backward(dout, q, saved.k, saved.v, out, lse)
                for total, part in zip((dk, dv), parts, strict=True):
                    total.add(piece.keys, part)
                sums.add(visit.owner, piece.rows, [dq_part])
                del q, dout, lse, delta, out, dq_part, parts
            sums.leave(visit.gradient)
            del block  # or three would be alive
        sums.arrive()
        return with_sinks((dq.result(), dk.result(), dv.result()), dout_LHD, saved)

    def packed_queries(self, dout_LHD: torch.Tensor, saved: Saved) -> Block:
        """This rank's own queries, copied together where they are going to travel; delta is made here, once for all ranks."""
        assert saved.lse is not None  # kernels without it are refused
        if not travels(self.query_visits):
            return Block((saved.q, dout_LHD, saved.lse, saved.lse), ())
        return self.filled(self.queries, saved.q, dout_LHD, saved.lse, delta_of(saved.out, dout_LHD, self.row_type))

    def queries(self, length: int) -> Block:
        case = self.kernel.case
        sizes = [(case.heads_q, case.head_dim), (case.heads_q, case.head_dim_v)]
        parts, memory = self.empty_block(length, sizes, self.kernel.dtype, "queries")
        rows = self.comm.empty((2, case.heads_q, length), self.row_type, "rows")
        return Block((*parts, rows[0], rows[1]), (*memory, rows))

    def query_gradients(self, length: int) -> Block:
        case = self.kernel.case
        return self.empty_block(length, [(case.heads_q, case.head_dim)], self.kernel.accumulate, "dq")
