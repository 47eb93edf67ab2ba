"""Ring and DoubleRing: keys travel, queries stay. Two KV buffers in a ring; with windows two more, for what is between windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from longca.masks import AnyMask
from longca.parallel.comm.base import Comm, Message, Transfer
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.primitives.ring_schedule import NOBODY, GradientHop, Hop, Visit, rounds_of
from longca.parallel.primitives.wire import in_order
from longca.parallel.ranges import Shards, count, joined

if TYPE_CHECKING:
    from longca.parallel.method import Plan


class Block(NamedTuple):
    """Tensors of a rank's tokens, such as K and V, and the memory that they lie in, one run per dtype, which is what travels."""

    parts: tuple[torch.Tensor, ...]
    memory: tuple[torch.Tensor, ...]


MakeBlock = Callable[[int], Block]  # an empty block for so many tokens


class Arriving:
    """A block under way; `wait` returns it."""

    def __init__(self, transfer: Transfer, block: Block | None) -> None:
        self.transfer, self.block = transfer, block

    def wait(self) -> Block | None:
        self.transfer.wait()
        block, self.block = self.block, None  # whoever gets it decides how long it lives
        return block


class DoubleRing(Program):
    """The ranks of `comm` in windows; each owns the keys of one shard, and its queries unless `rows` are others. With one window it is a
    plain ring. Where `rows` are others, out and dq are parts of what their owners get: they stay in fp32 if they are sums."""

    def __init__(
        self,
        kernel: LocalKernel,
        comm: Comm,
        mask: AnyMask,
        shards: Shards,
        heads: tuple[int, int],
        windows: int = 1,
        rows: Shards | None = None,
    ) -> None:
        rows_of = rows or shards
        self.result_type = kernel.dtype if rows is None or comm.size == 1 else kernel.accumulate  # of out and dq
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, rows_of[comm.rank], heads
        self.lengths, self.all_keys = [count(shard) for shard in shards], joined(np.concatenate(shards))
        self.visits = rounds_of(mask, rows_of, shards, windows).visits(comm.rank)
        self.pieces = kernel.over_shards(mask, rows_of, comm.rank, shards, [visit.owner for visit in self.visits])
        everybody = range(comm.size)
        self.inside, self.between, self.gradients = comm, comm.sub(everybody, "relays"), comm.sub(everybody, "gradients")

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        for _, piece, block in self.travel(self.visits, self.pieces, self.packed(k_LHD, v_LHD), self.keys):
            if piece is not None and block is not None:
                merger.add(piece.rows, *piece.forward(q_LHD, *block.parts))
            del block  # otherwise three buffers would be alive
        sinks = self.own_sinks(sinks_H)
        out, lse = merger.result(sinks, self.result_type)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in saved[:3])
        sums = RingGradients(self, (dk, dv), self.key_gradients)
        for visit, piece, block in self.travel(self.visits, self.pieces, self.packed(saved.k, saved.v), self.keys):
            if piece is not None and block is not None:
                k, v = block.parts
                dq_part, *parts = piece.backward(dout_LHD, saved.q, k, v, saved.out, saved.lse)
                dq.add(piece.rows, dq_part)
                sums.add(visit.owner, piece.keys, parts)
                del k, v, dq_part, parts
            sums.leave(visit.gradient)
            del block
        sums.arrive()
        return with_sinks((dq.result(self.result_type), dk.result(), dv.result()), dout_LHD, saved)

    def work(self, plan: Plan) -> int:
        return plan.pairs(self.rows, self.heads, self.all_keys)

    def travel(
        self, visits: Sequence[Visit], pieces: Sequence[Piece | None], block: Block | None, empty: MakeBlock
    ) -> Iterator[tuple[Visit, Piece | None, Block | None]]:
        """Each visit with its attention and the block that is here then; meanwhile it is sent on and the next one is received."""
        outer = Arriving(Transfer(), None)
        for visit, piece in zip(visits, pieces, strict=True):
            if visit.outer != Hop():
                outer = self.post(self.between, visit.outer, block, empty)
            inner = self.post(self.inside, visit.inner, block, empty)
            yield visit, piece, block
            block = outer.wait() if visit.ends_round else inner.wait()

    def post(self, comm: Comm, hop: Hop, block: Block | None, empty: MakeBlock) -> Arriving:
        """Send the block on and receive the next one, without waiting."""
        coming = empty(self.lengths[hop.owner]) if hop.source != NOBODY else None
        sends: list[Message] = [(hop.to, run) for run in block.memory] if block is not None and hop.to != NOBODY else []
        receives: list[Message] = [(hop.source, run) for run in coming.memory] if coming is not None else []
        return Arriving(comm.exchange(sends, receives), coming)

    def packed(self, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> Block:
        """This rank's own keys, copied together where they are going to travel."""
        return self.filled(self.keys, k_LHD, v_LHD) if travels(self.visits) else Block((k_LHD, v_LHD), ())

    def filled(self, empty: MakeBlock, *parts: torch.Tensor) -> Block:
        """A block with copies of these tensors."""
        block = empty(self.lengths[self.comm.rank])
        for into, part in zip(block.parts, parts, strict=True):
            into.copy_(part)
        return block

    def keys(self, length: int) -> Block:
        case = self.kernel.case
        return self.empty_block(length, [(case.heads_kv, case.head_dim), (case.heads_kv, case.head_dim_v)], self.kernel.dtype, "kv")

    def key_gradients(self, length: int) -> Block:
        case, dtype = self.kernel.case, self.kernel.accumulate
        return self.empty_block(length, [(case.heads_kv, case.head_dim), (case.heads_kv, case.head_dim_v)], dtype, "dkv")

    def empty_block(self, length: int, sizes: Sequence[tuple[int, int]], dtype: torch.dtype, what: str) -> Block:
        """Room for tensors of so many heads and head sizes, in one run of memory."""
        layout = self.kernel.layout
        shapes = [(length, *size) if layout == "LHD" else (size[0], length, size[1]) for size in sizes]
        flat = self.comm.empty((sum(map(prod, shapes)),), dtype, what)
        views = zip(flat.split([prod(shape) for shape in shapes]), shapes, strict=True)
        return Block(tuple(in_order(x.view(shape), layout) for x, shape in views), (flat,))


def travels(visits: Sequence[Visit]) -> bool:
    """Whether anything is sent during these visits."""
    return any(visit.inner.to != NOBODY or visit.outer.to != NOBODY for visit in visits)


class RingGradients:
    """The gradients of blocks on their way round: each rank adds its part, the last one sends the sum home. All in fp32."""

    def __init__(self, ring: DoubleRing, own: tuple[Total, ...], empty: MakeBlock) -> None:
        self.ring, self.own, self.empty = ring, own, empty
        self.held: Block | None = None  # what this visit adds to
        self.coming: Block | None = None
        self.home: Block | None = None
        self.transfer = Transfer()

    def arrive(self) -> None:
        """Receives the sums that the visit before sent; a second call does nothing."""
        self.transfer.wait()
        self.held, self.coming = self.coming or self.held, None
        home, self.home = self.home, None
        if home is not None:
            for total, part in zip(self.own, home.parts, strict=True):
                total.add(slice(None), part)

    def add(self, owner: int, where: slice, parts: Sequence[torch.Tensor]) -> None:
        self.arrive()
        if owner == self.ring.comm.rank:
            for total, part in zip(self.own, parts, strict=True):
                total.add(where, part)
            return
        if self.held is None:
            self.held = self.empty(self.ring.lengths[owner])
            for run in self.held.memory:
                run.zero_()
        for into, part in zip(self.held.parts, parts, strict=True):
            into[where] += part

    def leave(self, hop: GradientHop) -> None:
        """Send on what is held, and receive what the next visit adds to; my own sum may come home at the same time."""
        self.arrive()
        ring = self.ring
        sends: list[Message] = [(hop.to, run) for run in self.held.memory] if self.held is not None and hop.to != NOBODY else []
        receives: list[Message] = []
        if hop.source != NOBODY:
            self.coming = self.empty(ring.lengths[hop.owner])
            receives += [(hop.source, run) for run in self.coming.memory]
        if hop.home_from != NOBODY:
            self.home = self.empty(ring.lengths[ring.comm.rank])
            receives += [(hop.home_from, run) for run in self.home.memory]
        self.held = None
        self.transfer = ring.gradients.exchange(sends, receives)


class Ring(DoubleRing):
    """N steps; the transfer of step s+1 runs beside the attention of step s."""
