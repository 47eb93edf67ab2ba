"""GroupCast: every rank receives exactly the keys that its rows can see, in stages beside the attention, and returns their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from longca.masks import Mask
from longca.parallel.comm.base import Comm, Message, Transfer, all_of
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Ranges, Shards, count, joined, positions
from longca.parallel.transfers import Needs, Round, in_stages, rounds

JOIN_BYTES = 1 << 20  # rounds of messages that are smaller together are posted at once


@dataclass(frozen=True)
class Post:
    """What this rank sends and receives at once: of one round, or of several small ones."""

    wanted_by: dict[int, torch.Tensor]  # which of my keys each rank wants
    spans: dict[int, slice]  # where each rank's keys land


@dataclass(frozen=True)
class Stage:
    """What moves in one stage. Remote keys land rank after rank; `order` brings them into global order, `back` the other way."""

    posts: list[Post]
    length: int
    order: torch.Tensor
    back: torch.Tensor
    piece: Piece | None


@lru_cache(maxsize=8)
def staged(needs: Needs, stages: int, small: int) -> list[list[list[Turn]]]:
    """The posts of each stage, the same on all ranks."""
    return [[[Turn(turn) for turn in post] for post in stage] for stage in in_stages(rounds(needs.sizes), needs.sizes, stages, small)]


class Turn:
    """A round, as its receivers and as its senders see it."""

    def __init__(self, turn: Round) -> None:
        self.sender = turn  # by receiver
        self.receiver = {sender: receiver for receiver, sender in turn.items()}


needs_of: Callable[[Mask, Shards], Needs] = once_for_all_ranks(Needs)


class GroupCast(Program):
    """`stages`: in how many parts remote keys come, each beside the attention over the part before. Each part comes in rounds in which a
    rank sends to one rank and receives from one."""

    def __init__(self, kernel: LocalKernel, comm: Comm, mask: Mask, shards: Shards, heads: tuple[int, int], stages: int = 2) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        needs, case = needs_of(mask, shards), kernel.case
        key_bytes = case.heads_kv * (case.head_dim + case.head_dim_v) * kernel.dtype.itemsize
        plan = staged(needs, stages, JOIN_BYTES // key_bytes)
        rows = mask.rows(self.rows)  # type: ignore[arg-type]  # arrays are ranges too
        self.own = kernel.over(rows.cols(self.rows))  # type: ignore[arg-type]
        self.stages = [self._stage(needs, posts, rows) for posts in plan]
        self.returns = comm.sub(range(comm.size), "gradients")

    def _stage(self, needs: Needs, posts: list[list[Turn]], rows: Mask) -> Stage:
        me = self.comm.rank
        coming = [[(owner, needs.keys(me, owner)) for turn in post if (owner := turn.sender.get(me)) is not None] for post in posts]
        wanted = [[rank for turn in post if (rank := turn.receiver.get(me)) is not None] for post in posts]
        pieces = [keys for post in coming for _, keys in post]
        keys = joined(np.concatenate([np.zeros((0, 2), np.int64), *pieces]))
        edges = itertools.pairwise(np.append(0, np.cumsum([count(piece) for piece in pieces], dtype=np.int64)).tolist())
        if self.comm.shapes_only:
            order = back = self._places(keys, keys)
        else:
            place = np.concatenate([np.zeros(0, np.int64), *(positions(piece, keys) for piece in pieces)])
            order, back = self._index(np.argsort(place, kind="stable")), self._index(place)
        return Stage(
            [
                Post(
                    {rank: self._places(needs.keys(rank, me), self.rows) for rank in ranks},
                    {owner: slice(*next(edges)) for owner, _ in mine},
                )
                for ranks, mine in zip(wanted, coming, strict=True)
            ],
            count(keys),
            order,
            back,
            self.kernel.over(rows.cols(keys)),  # type: ignore[arg-type]
        )

    def _places(self, ranges: Ranges, of: Ranges) -> torch.Tensor:
        """Where tokens stand among others; of shapes only their number is asked for."""
        if self.comm.shapes_only:
            return torch.empty(count(ranges), dtype=torch.int64, device=self.comm.device)
        return self._index(positions(ranges, of))

    def _index(self, numbers: Ranges) -> torch.Tensor:
        return torch.from_numpy(numbers).to(self.comm.device)

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        coming = self.cast(0, k_LHD, v_LHD)
        if self.own is not None:
            merger.add(self.own.rows, *self.own.forward(q_LHD, k_LHD, v_LHD))
        for number, stage in enumerate(self.stages):
            k, v = self.landed(stage, coming)
            coming = self.cast(number + 1, k_LHD, v_LHD)
            if stage.piece is not None:
                merger.add(stage.piece.rows, *stage.piece.forward(q_LHD, k, v))
        sinks = self.own_sinks(sinks_H)
        out, lse = merger.result(sinks)
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in kept[:3])
        coming = self.cast(0, kept.k, kept.v)
        if self.own is not None:
            parts = self.own.backward(dout_LHD, *kept[:5])
            for total, part, where in zip((dq, dk, dv), parts, (self.own.rows, self.own.keys, self.own.keys), strict=True):
                total.add(where, part)
        returning = Transfer()
        for number, stage in enumerate(self.stages):
            k, v = self.landed(stage, coming)
            coming = self.cast(number + 1, kept.k, kept.v)
            grads = [Total(self.kernel, k.shape), Total(self.kernel, v.shape)]
            if stage.piece is not None:
                dq_part, *parts_kv = stage.piece.backward(dout_LHD, kept.q, k, v, kept.out, kept.lse)
                dq.add(stage.piece.rows, dq_part)
                for total, part in zip(grads, parts_kv, strict=True):
                    total.add(stage.piece.keys, part)
            returning.wait()
            returning = self.give_back(stage, [total.result() for total in grads], (dk, dv))
        returning.wait()
        return with_sinks((dq.result(), dk.result(), dv.result()), dout_LHD, kept)

    def cast(self, number: int, *own: torch.Tensor) -> tuple[Transfer, list[torch.Tensor]]:
        """Posts the keys of a stage, round after round: sends what others want of mine, receives what I want of theirs."""
        if number >= len(self.stages):
            return Transfer(), []
        stage = self.stages[number]
        buffers = [self.comm.empty((stage.length, *x.shape[1:]), x.dtype, "cast") for x in own]
        transfers = []
        for post in stage.posts:
            sends = [(rank, take_rows(x, index, "LHD")) for rank, index in post.wanted_by.items() for x in own]
            receives = [(owner, buffer[span]) for owner, span in post.spans.items() for buffer in buffers]
            transfers.append(self.comm.exchange(sends, receives))
        return all_of(transfers), buffers

    def landed(self, stage: Stage, coming: tuple[Transfer, list[torch.Tensor]]) -> list[torch.Tensor]:
        """Returns the keys of a stage in global order."""
        transfer, buffers = coming
        transfer.wait()
        return [take_rows(buffer, stage.order, self.kernel.layout) for buffer in buffers]

    def give_back(self, stage: Stage, grads: Sequence[torch.Tensor], totals: Sequence[Total]) -> Transfer:
        """Returns dK and dV of a stage to their owners, round after round; what comes back for my keys is added in fp32."""
        going = [take_rows(grad, stage.back, "LHD") for grad in grads]
        return all_of([self._return(post, going, totals) for post in stage.posts])

    def _return(self, post: Post, going: Sequence[torch.Tensor], totals: Sequence[Total]) -> Transfer:
        sends: list[Message] = [(owner, part[span]) for owner, span in post.spans.items() for part in going]
        buffers = {
            rank: [self.comm.empty((len(index), *grad.shape[1:]), grad.dtype, "returned") for grad in going]
            for rank, index in post.wanted_by.items()
        }
        receives: list[Message] = [(rank, buffer) for rank, pair in buffers.items() for buffer in pair]

        def add() -> None:
            for rank, pair in buffers.items():
                for total, part in zip(totals, pair, strict=True):
                    into = total.buffer()
                    into.index_add_(0, post.wanted_by[rank], part.to(into.dtype))
            buffers.clear()

        return self.returns.exchange(sends, receives).then(add)
