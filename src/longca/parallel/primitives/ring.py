"""Ring and DoubleRing: keys travel, queries stay. Two KV buffers in a ring; with windows two more, for what is between windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple, cast

import torch

from longca.masks import Mask
from longca.parallel.comm.base import Comm, Message, Transfer
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program
from longca.parallel.primitives.ring_schedule import NOBODY, GradientHop, Hop, schedule
from longca.parallel.primitives.wire import in_order
from longca.parallel.ranges import Shards, count


class Block(NamedTuple):
    k: torch.Tensor
    v: torch.Tensor


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

    def __init__(self, kernel: LocalKernel, comm: Comm, mask: Mask, shards: Shards, heads: tuple[int, int], windows: int = 1) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        self.lengths = [count(shard) for shard in shards]
        areas = mask.pair_areas(shards, shards)  # type: ignore[arg-type]  # arrays are ranges too
        self.visits = schedule(areas, comm.rank, windows)
        rows = mask.rows(self.rows)  # type: ignore[arg-type]
        self.pieces = [kernel.over(rows.cols(shards[visit.owner])) for visit in self.visits]  # type: ignore[arg-type]
        everybody = range(comm.size)
        self.inside, self.between, self.gradients = (comm.sub(everybody, label) for label in ("keys", "windows", "gradients"))

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        block: Block | None = Block(k_LHD, v_LHD)
        outer = Arriving(Transfer(), None)
        for visit, piece in zip(self.visits, self.pieces, strict=True):
            if visit.outer != Hop():
                outer = self.post(self.between, visit.outer, block)
            inner = self.post(self.inside, visit.inner, block)
            if piece is not None and block is not None:
                merger.add(piece.rows, *piece.forward(q_LHD, *block))
            block = outer.wait() if visit.ends_round else inner.wait()
        out, lse = merger.result()
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in kept[:3])
        block: Block | None = Block(kept.k, kept.v)
        outer = Arriving(Transfer(), None)
        travelling = Travelling(self, dk, dv)
        for visit, piece in zip(self.visits, self.pieces, strict=True):
            if visit.outer != Hop():
                outer = self.post(self.between, visit.outer, block)
            inner = self.post(self.inside, visit.inner, block)
            parts = piece.backward(dout_LHD, kept.q, *block, kept.out, kept.lse) if piece is not None and block is not None else None
            travelling.arrive()
            if piece is not None and parts is not None:
                dq.add(piece.rows, parts[0])
                travelling.add(visit.owner, piece.keys, parts[1:])
            del parts
            travelling.leave(visit.gradient)
            block = outer.wait() if visit.ends_round else inner.wait()
        travelling.arrive()
        return dq.result(), dk.result(), dv.result()

    def post(self, comm: Comm, hop: Hop, block: Block | None) -> Arriving:
        """Send the block on and receive the next one, without waiting."""
        coming = self.empty_block(self.lengths[hop.owner]) if hop.source != NOBODY else None
        sends: list[Message] = [(hop.to, self.run(x)) for x in block or () if hop.to != NOBODY]
        receives: list[Message] = [(hop.source, self.run(x)) for x in coming or ()]
        return Arriving(comm.exchange(sends, receives), coming)

    def empty_block(self, length: int, dtype: torch.dtype | None = None, what: str = "kv") -> Block:
        """K and V, or their gradients, in one buffer."""
        case, layout = self.kernel.case, self.kernel.layout
        tokens = (length, case.heads_kv) if layout == "LHD" else (case.heads_kv, length)
        shapes = [(*tokens, size) for size in (case.head_dim, case.head_dim_v)]
        flat = self.comm.empty((sum(map(prod, shapes)),), dtype or self.kernel.dtype, what)
        k, v = (x.view(shape) for x, shape in zip(flat.split([prod(shape) for shape in shapes]), shapes, strict=True))
        return Block(in_order(k, layout), in_order(v, layout))

    def run(self, x_LHD: torch.Tensor) -> torch.Tensor:
        """The tensor as one run of memory, in the order all ranks use."""
        return in_order(x_LHD, self.kernel.layout).contiguous()


class Travelling:
    """The gradients of keys on their way round: each rank adds its part, the last one sends the sum home. Two buffers, in fp32."""

    def __init__(self, ring: DoubleRing, dk: Total, dv: Total) -> None:
        self.ring, self.own = ring, (dk, dv)
        self.held: tuple[Total, Total] | None = None
        self.transfer, self.coming, self.home = Transfer(), cast(Block | None, None), cast(Block | None, None)

    def arrive(self) -> None:
        self.transfer.wait()
        self.held = self._totals(self.coming) if self.coming is not None else None
        for total, part in zip(self.own, self.home or (), strict=False):
            total.add(slice(None), part)
        self.coming = self.home = None

    def add(self, owner: int, keys: slice, parts: Sequence[torch.Tensor]) -> None:
        if owner == self.ring.comm.rank:
            totals = self.own
        else:
            totals = self.held = self.held or self._totals(None, owner)
        for total, part in zip(totals, parts, strict=True):
            total.add(keys, part)

    def leave(self, hop: GradientHop) -> None:
        ring, dtype = self.ring, self.ring.kernel.accumulate
        sends: list[Message] = [(hop.to, ring.run(total.buffer())) for total in self.held or () if hop.to != NOBODY]
        if hop.source != NOBODY:
            self.coming = ring.empty_block(ring.lengths[hop.owner], dtype, "dkv")
        if hop.home_from != NOBODY:
            self.home = ring.empty_block(ring.lengths[ring.comm.rank], dtype, "dkv")
        receives: list[Message] = [(hop.source, ring.run(x)) for x in self.coming or ()]
        receives += [(hop.home_from, ring.run(x)) for x in self.home or ()]
        self.held = None
        self.transfer = ring.gradients.exchange(sends, receives)

    def _totals(self, block: Block | None, owner: int = NOBODY) -> tuple[Total, Total]:
        """Sums that go on from a block that has arrived, or that start here."""
        kernel = self.ring.kernel
        if block is not None:
            return Total(kernel, block.k.shape, block.k), Total(kernel, block.v.shape, block.v)
        length, case = self.ring.lengths[owner], kernel.case
        return Total(kernel, (length, case.heads_kv, case.head_dim)), Total(kernel, (length, case.heads_kv, case.head_dim_v))


class Ring(DoubleRing):
    """N steps; the transfer of step s+1 runs beside the attention of step s."""
