"""Gather: gathers keys in global order and attends once. The backward gathers them again and returns sums of their gradients."""

from __future__ import annotations

import itertools
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from longca.masks import AnyMask
from longca.parallel.comm.base import Comm
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Ranges, Shards, as_array, count, tokens


class Order(NamedTuple):
    """The order of tokens that were gathered rank after rank."""

    spans: list[slice]  # of each rank
    place_of: NDArray[np.int64]  # by token: its place among the gathered
    token_of: NDArray[np.int64]  # by place: its token
    in_order: bool


@once_for_all_ranks
def order_of(shards: Shards) -> Order:
    edges = np.append(0, np.cumsum([count(shard) for shard in shards]))
    owned = np.concatenate([tokens(shard) for shard in shards])
    spans = [slice(int(first), int(last)) for first, last in itertools.pairwise(edges)]
    place_of = np.argsort(owned, kind="stable")
    return Order(spans, place_of, np.argsort(place_of), bool((owned[1:] > owned[:-1]).all()))


@once_for_all_ranks
def all_keys(mask: AnyMask) -> Shards:
    return (as_array([(0, mask.seqlen_k)]),)


class GatherScatter:
    """Gathers the tokens of all ranks of a group on each of them, in global order, and returns sums over all ranks to a token's owner.

    Parts of a sum travel in the kernel's type, and their owner adds them in fp32. Where the group crosses nodes and the backend has its
    own collectives (NCCL), parts travel in fp32: only then does the backend add them on the way without rounding at every hop. On 64 GPUs
    with 8 per node this sends 16 times the bytes of a part in bf16 between nodes, and not 56 times. Uneven parts are never added on the
    way, so they stay in the kernel's type, as all parts do that travel in pairs (gloo).
    """

    def __init__(self, kernel: LocalKernel, comm: Comm, shards: Shards, crosses_nodes: bool) -> None:
        self.kernel, self.comm = kernel, comm
        order = order_of(shards)
        self.spans, self.in_order = order.spans, order.in_order
        even = len({count(shard) for shard in shards}) == 1
        added_on_the_way = crosses_nodes and even and comm.own_collectives
        self.part_type = kernel.accumulate if added_on_the_way else None  # None: as it is
        self.place_of, self.token_of = (torch.from_numpy(index).to(comm.device) for index in (order.place_of, order.token_of))

    def gathered(self, *own: torch.Tensor) -> list[torch.Tensor]:
        """Returns tensors of all ranks' tokens, in order. They travel as [L, ...], so that shards of any length are contiguous."""
        wholes = [self.comm.empty((self.spans[-1].stop, *x.shape[1:]), x.dtype, "gathered") for x in own]
        self.comm.all_gather([x.contiguous() for x in own], [[whole[span] for whole in wholes] for span in self.spans]).wait()
        index = None if self.in_order else self.place_of
        return [take_rows(whole, index, self.kernel.layout if whole.dim() == 3 else "LHD") for whole in wholes]

    def by_rank(self, whole: torch.Tensor, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        """Returns the tokens of each rank, each one run of memory, in another type where one is given."""
        taken = take_rows(whole, None if self.in_order else self.token_of, "LHD").to(dtype or whole.dtype)
        return [taken[span] for span in self.spans]

    def scattered(self, *wholes: torch.Tensor) -> list[torch.Tensor]:
        """Returns the sums over all ranks of this rank's tokens, each part rounded once."""
        parts = [self.by_rank(whole, self.part_type) for whole in wholes]
        totals = [self.comm.empty(part[self.comm.rank].shape, self.kernel.accumulate, "total") for part in parts]
        self.comm.reduce_scatter([list(of_rank) for of_rank in zip(*parts, strict=True)], totals).wait()
        return [take_rows(total.to(self.kernel.dtype), None, self.kernel.layout) for total in totals]


class Collective(Protocol):
    """Gathers keys of other ranks, and returns the sums of their gradients to their owners."""

    part_type: torch.dtype | None  # in which the parts of sums travel; None: as they are

    def gathered(self, *own: torch.Tensor) -> list[torch.Tensor]: ...

    def scattered(self, *wholes: torch.Tensor) -> list[torch.Tensor]: ...


class Gather(Program):
    """`piece` is the attention of the rows over the keys that are gathered; None where they see none."""

    def __init__(self, kernel: LocalKernel, rows: Ranges, heads: tuple[int, int], piece: Piece | None, collective: Collective) -> None:
        self.kernel, self.rows, self.heads, self.piece, self.collective = kernel, rows, heads, piece, collective

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        k, v = self.collective.gathered(k_LHD, v_LHD)
        if self.piece is not None:
            merger.add(self.piece.rows, *self.piece.forward(q_LHD, k, v))
        sinks = self.own_sinks(sinks_H)
        out, lse = merger.result(sinks)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        k, v = self.collective.gathered(saved.k, saved.v)
        dq, dk, dv = (Total(self.kernel, x.shape) for x in (saved.q, k, v))
        if self.piece is not None:
            gradients = self.piece.backward(dout_LHD, saved.q, k, v, saved.out, saved.lse)
            for total, part, where in zip((dq, dk, dv), gradients, (self.piece.rows, self.piece.keys, self.piece.keys), strict=True):
                total.add(where, part)
        exact = self.collective.part_type is not None  # then nothing is rounded that will be sent in fp32
        parts = [total.result(total.dtype if exact else None) for total in (dk, dv)]
        return with_sinks((dq.result(), *self.collective.scattered(*parts)), dout_LHD, saved)
