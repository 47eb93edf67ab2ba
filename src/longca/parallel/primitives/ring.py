"""Ring and DoubleRing: keys travel, queries stay. Two KV buffers in a ring; with windows two more, for what is between windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import torch

from longca.masks import AnyMask
from longca.parallel.comm.base import Comm, Message, Transfer, size_of
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program
from longca.parallel.primitives.ring_schedule import NOBODY, GradientHop, Hop, rounds_of
from longca.parallel.primitives.wire import in_order
from longca.parallel.ranges import Shards, count


class Block(NamedTuple):
    """K and V of a rank, or their gradients, and the one run of memory that both lie in, which is what travels."""

    k: torch.Tensor
    v: torch.Tensor
    memory: torch.Tensor


class Arriving:
    """A block on its way; `wait` hands it over."""

    def __init__(self, transfer: Transfer, block: Block | None) -> None:
        self.transfer, self.block = transfer, block

    def wait(self) -> Block | None:
        self.transfer.wait()
        block, self.block = self.block, None  # whoever gets it decides how long it lives
        return block


class DoubleRing(Program):
    """The ranks of `comm` in windows; each owns the tokens of one shard. With one window it is a plain ring."""

    def __init__(self, kernel: LocalKernel, comm: Comm, mask: AnyMask, shards: Shards, heads: tuple[int, int], windows: int = 1) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        self.lengths = [count(shard) for shard in shards]
        self.visits = rounds_of(mask, shards, windows).visits(comm.rank)
        self.pieces = kernel.over_shards(mask, shards, comm.rank, shards, [visit.owner for visit in self.visits])
        everybody = range(comm.size)
        self.inside, self.gradients = comm.sub(everybody, "keys"), comm.sub(everybody, "gradients")
        self.between = comm.sub(everybody, "windows") if windows > 1 else self.inside

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        block = self.packed(k_LHD, v_LHD)
        outer = Arriving(Transfer(), None)
        for visit, piece in zip(self.visits, self.pieces, strict=True):
            if visit.outer != Hop():
                outer = self.post(self.between, visit.outer, block)
            inner = self.post(self.inside, visit.inner, block)
            if piece is not None and block is not None:
                merger.add(piece.rows, *piece.forward(q_LHD, block.k, block.v))
            block = outer.wait() if visit.ends_round else inner.wait()
        out, lse = merger.result()
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in kept[:3])
        block = self.packed(kept.k, kept.v)
        outer = Arriving(Transfer(), None)
        travelling = Travelling(self, dk, dv)
        for visit, piece in zip(self.visits, self.pieces, strict=True):
            if visit.outer != Hop():
                outer = self.post(self.between, visit.outer, block)
            inner = self.post(self.inside, visit.inner, block)
            if piece is not None and block is not None:
                dq_part, *parts = piece.backward(dout_LHD, kept.q, block.k, block.v, kept.out, kept.lse)
                dq.add(piece.rows, dq_part)
                travelling.arrive()
                travelling.add(visit.owner, piece.keys, parts)
                del dq_part, parts
            travelling.arrive()
            travelling.leave(visit.gradient)
            block = outer.wait() if visit.ends_round else inner.wait()
        travelling.arrive()
        return dq.result(), dk.result(), dv.result()

    def post(self, comm: Comm, hop: Hop, block: Block | None) -> Arriving:
        """Send the block on and receive the next one, without waiting."""
        coming = self.empty_block(self.lengths[hop.owner]) if hop.source != NOBODY else None
        sends: list[Message] = [(hop.to, block.memory)] if block is not None and hop.to != NOBODY else []
        return Arriving(comm.exchange(sends, [(hop.source, coming.memory)] if coming is not None else []), coming)

    def packed(self, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> Block | None:
        """This rank's own block, copied together where it is going to travel."""
        if all(visit.inner.to == visit.outer.to == NOBODY for visit in self.visits):
            return Block(k_LHD, v_LHD, k_LHD)
        block = self.empty_block(len(k_LHD))
        block.k.copy_(k_LHD)
        block.v.copy_(v_LHD)
        self.comm.note_work("copy", 2 * size_of(block.memory))
        return block

    def empty_block(self, length: int, dtype: torch.dtype | None = None, what: str = "kv") -> Block:
        case, layout = self.kernel.case, self.kernel.layout
        tokens = (length, case.heads_kv) if layout == "LHD" else (case.heads_kv, length)
        shapes = [(*tokens, size) for size in (case.head_dim, case.head_dim_v)]
        flat = self.comm.empty((sum(map(prod, shapes)),), dtype or self.kernel.dtype, what)
        k, v = (x.view(shape) for x, shape in zip(flat.split([prod(shape) for shape in shapes]), shapes, strict=True))
        return Block(in_order(k, layout), in_order(v, layout), flat)


class Travelling:
    """The gradients of keys on their way round: each rank adds its part, the last one sends the sum home. All in fp32."""

    def __init__(self, ring: DoubleRing, dk: Total, dv: Total) -> None:
        self.ring, self.own = ring, (dk, dv)
        self.held: Block | None = None  # what this visit adds to
        self.coming: Block | None = None
        self.home: Block | None = None
        self.transfer = Transfer()

    def arrive(self) -> None:
        """Take what the visit before has sent; a second call finds nothing."""
        self.transfer.wait()
        self.held, self.coming = self.coming or self.held, None
        home, self.home = self.home, None
        if home is not None:
            for total, part in zip(self.own, home[:2], strict=True):
                total.add(slice(None), part)

    def add(self, owner: int, keys: slice, parts: Sequence[torch.Tensor]) -> None:
        if owner == self.ring.comm.rank:
            for total, part in zip(self.own, parts, strict=True):
                total.add(keys, part)
            return
        if self.held is None:
            self.held = self.ring.empty_block(self.ring.lengths[owner], self.ring.kernel.accumulate, "dkv")
            self.held.memory.zero_()
        for into, part in zip(self.held[:2], parts, strict=True):
            into[keys] += part.to(into.dtype)
            self.ring.comm.note_work("merge", size_of(part) + 2 * size_of(into[keys]))

    def leave(self, hop: GradientHop) -> None:
        """Send on what is held, and receive what the next visit adds to; my own sum may come home at the same time."""
        ring, dtype = self.ring, self.ring.kernel.accumulate
        sends: list[Message] = [(hop.to, self.held.memory)] if self.held is not None and hop.to != NOBODY else []
        receives: list[Message] = []
        if hop.source != NOBODY:
            self.coming = ring.empty_block(ring.lengths[hop.owner], dtype, "dkv")
            receives.append((hop.source, self.coming.memory))
        if hop.home_from != NOBODY:
            self.home = ring.empty_block(ring.lengths[ring.comm.rank], dtype, "dkv")
            receives.append((hop.home_from, self.home.memory))
        self.held = None
        self.transfer = ring.gradients.exchange(sends, receives)


class Ring(DoubleRing):
    """N steps; the transfer of step s+1 runs beside the attention of step s."""
