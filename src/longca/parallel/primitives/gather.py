"""Gather: bring all keys here, put them into global order, attend once; backward brings them again and returns gradients."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from longca.masks import AnyMask
from longca.parallel.comm.base import Comm
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Shards, as_array, count, tokens


class Order(NamedTuple):
    """Where the tokens of all ranks stand when they are gathered rank after rank."""

    spans: list[slice]  # of each rank
    token_of: NDArray[np.int64]  # what stands where
    place_of: NDArray[np.int64]
    in_order: bool


@once_for_all_ranks
def order_of(shards: Shards) -> Order:
    edges = np.append(0, np.cumsum([count(shard) for shard in shards]))
    owned = np.concatenate([tokens(shard) for shard in shards])
    spans = [slice(int(first), int(last)) for first, last in itertools.pairwise(edges)]
    return Order(spans, owned, np.argsort(owned, kind="stable"), bool((owned[1:] > owned[:-1]).all()))


@once_for_all_ranks
def all_keys(mask: AnyMask) -> Shards:
    return (as_array([(0, mask.seqlen_k)]),)


class Gather(Program):
    def __init__(self, kernel: LocalKernel, comm: Comm, mask: AnyMask, shards: Shards, heads: tuple[int, int]) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        order = order_of(shards)
        self.spans, self.in_order = order.spans, order.in_order
        (self.piece,) = kernel.over_shards(mask, shards, comm.rank, all_keys(mask), [0])
        self.token_of, self.place_of = (torch.from_numpy(index).to(comm.device) for index in (order.token_of, order.place_of))

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        k, v = self.gathered(k_LHD, v_LHD)
        if self.piece is not None:
            merger.add(self.piece.rows, *self.piece.forward(q_LHD, k, v))
        out, lse = merger.result()
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        k, v = self.gathered(kept.k, kept.v)
        dq, dk, dv = (Total(self.kernel, x.shape) for x in (kept.q, k, v))
        if self.piece is not None:
            parts = self.piece.backward(dout_LHD, kept.q, k, v, kept.out, kept.lse)
            for total, part, where in zip((dq, dk, dv), parts, (self.piece.rows, self.piece.keys, self.piece.keys), strict=True):
                total.add(where, part)
        return dq.result(), *self.scattered(dk.result(), dv.result())

    def gathered(self, *own: torch.Tensor) -> list[torch.Tensor]:
        """K and V of all ranks, in global order. They travel as [L, H, D], so that pieces of any length lie one after the other."""
        wholes = [self.comm.empty((self.spans[-1].stop, *x.shape[1:]), x.dtype, "gathered") for x in own]
        self.comm.all_gather([x.contiguous() for x in own], [[whole[span] for whole in wholes] for span in self.spans]).wait()
        return [take_rows(self.comm, whole, None if self.in_order else self.place_of, self.kernel.layout) for whole in wholes]

    def scattered(self, *wholes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The sums of dK and dV of my tokens over all ranks, each part rounded once."""
        by_rank = [take_rows(self.comm, whole, None if self.in_order else self.token_of, "LHD") for whole in wholes]
        length = self.spans[self.comm.rank].stop - self.spans[self.comm.rank].start
        totals = [self.comm.empty((length, *whole.shape[1:]), self.kernel.accumulate, "total") for whole in wholes]
        self.comm.reduce_scatter([[whole[span] for whole in by_rank] for span in self.spans], totals).wait()
        dk, dv = (take_rows(self.comm, total.to(self.kernel.dtype), None, self.kernel.layout) for total in totals)
        return dk, dv
