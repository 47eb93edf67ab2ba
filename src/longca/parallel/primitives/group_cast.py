"""GroupCast: every rank receives exactly the keys that its rows can see, in stages beside the attention, and returns their gradients."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from longca.masks import Mask
from longca.masks.bands import spread
from longca.parallel.comm.base import Comm, Message, Transfer, size_of
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Ranges, Shards, count, joined, positions, seen_keys

STAGES = 2  # parts in which remote keys come, each beside the attention over the part before


@dataclass(frozen=True)
class Stage:
    """What moves in one stage. Remote keys land rank after rank; `order` brings them into global order, `back` the other way."""

    wanted_by: dict[int, torch.Tensor]  # which of my keys each rank wants
    spans: dict[int, slice]  # where each rank's keys land
    length: int
    order: torch.Tensor
    back: torch.Tensor
    piece: Piece | None


class Plan:
    """Who needs which keys of whom: needed[rank][owner], and the same by owner: wanted[owner][rank]. Nothing is listed for nobody."""

    def __init__(self, mask: Mask, shards: Shards) -> None:
        everything = np.concatenate(shards)
        owner = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        order = np.argsort(everything[:, 0], kind="stable")
        everything, owner = everything[order], owner[order]
        self.needed = [_by_owner(seen_keys(mask, shard), everything, owner) for shard in shards]
        self.wanted: list[dict[int, Ranges]] = [{} for _ in shards]
        for rank, needed in enumerate(self.needed):
            for source, ranges in needed.items():
                self.wanted[source][rank] = ranges
        self.ranks = len(shards)

    def stage_of(self, rank: int, owner: int) -> int:
        """Near owners first; both ends find the same stage from their distance."""
        return ((rank - owner) % self.ranks - 1) * STAGES // max(1, self.ranks - 1)


plan_of: Callable[[Mask, Shards], Plan] = once_for_all_ranks(Plan)


def _by_owner(keys: Ranges, owned: Ranges, owner: Ranges) -> dict[int, Ranges]:
    """The keys by the rank that owns them; `owned` are the ranges of all ranks in order, `owner` the rank of each."""
    first = np.searchsorted(owned[:, 1], keys[:, 0], side="right")
    last = np.searchsorted(owned[:, 0], keys[:, 1], side="left")
    mine, theirs = spread(first, last)
    ranges = np.stack([np.maximum(keys[mine, 0], owned[theirs, 0]), np.minimum(keys[mine, 1], owned[theirs, 1])], 1)
    order = np.argsort(owner[theirs], kind="stable")
    ranks, starts = np.unique(owner[theirs][order], return_index=True)
    edges = np.append(starts, len(order)).tolist()
    ranges = ranges[order]
    return {rank: ranges[first:last] for rank, first, last in zip(ranks.tolist(), edges, edges[1:], strict=False)}


class GroupCast(Program):
    def __init__(self, kernel: LocalKernel, comm: Comm, mask: Mask, shards: Shards, heads: tuple[int, int]) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        plan = plan_of(mask, shards)
        rows = mask.rows(self.rows)  # type: ignore[arg-type]  # arrays are ranges too
        self.own = kernel.over(rows.cols(self.rows))  # type: ignore[arg-type]
        self.stages = [self._stage(plan, shards, rows, number) for number in range(min(STAGES, comm.size - 1))]
        self.returns = comm.sub(range(comm.size), "gradients")

    def _stage(self, plan: Plan, shards: Shards, rows: Mask, number: int) -> Stage:
        me = self.comm.rank
        wanted = {rank: ranges for rank, ranges in plan.wanted[me].items() if rank != me and plan.stage_of(rank, me) == number}
        coming = {owner: ranges for owner, ranges in plan.needed[me].items() if owner != me and plan.stage_of(me, owner) == number}
        keys = joined(np.concatenate([np.zeros((0, 2), np.int64), *coming.values()]))
        edges = np.append(0, np.cumsum([count(ranges) for ranges in coming.values()], dtype=np.int64)).tolist()
        if self.comm.shapes_only:
            order = back = self._places(keys, keys)
        else:
            place = np.concatenate([np.zeros(0, np.int64), *(positions(ranges, keys) for ranges in coming.values())])
            order, back = self._index(np.argsort(place, kind="stable")), self._index(place)
        return Stage(
            {rank: self._places(ranges, shards[me]) for rank, ranges in wanted.items()},
            {owner: slice(*span) for owner, span in zip(coming, itertools.pairwise(edges), strict=True)},
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

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        coming = self.cast(0, k_LHD, v_LHD)
        if self.own is not None:
            merger.add(self.own.rows, *self.own.forward(q_LHD, k_LHD, v_LHD))
        for number, stage in enumerate(self.stages):
            k, v = self.landed(stage, coming)
            coming = self.cast(number + 1, k_LHD, v_LHD)
            if stage.piece is not None:
                merger.add(stage.piece.rows, *stage.piece.forward(q_LHD, k, v))
        out, lse = merger.result()
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in kept[:3])
        coming = self.cast(0, kept.k, kept.v)
        if self.own is not None:
            parts = self.own.backward(dout_LHD, *kept)
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
        return dq.result(), dk.result(), dv.result()

    def cast(self, number: int, *own: torch.Tensor) -> tuple[Transfer, list[torch.Tensor]]:
        """Post the keys of a stage: send what others want of mine, receive what I want of theirs."""
        if number >= len(self.stages):
            return Transfer(), []
        stage = self.stages[number]
        sends = [(rank, take_rows(self.comm, x, index, "LHD")) for rank, index in stage.wanted_by.items() for x in own]
        buffers = [self.comm.empty((stage.length, *x.shape[1:]), x.dtype, "cast") for x in own]
        receives = [(owner, buffer[span]) for owner, span in stage.spans.items() for buffer in buffers]
        return self.comm.exchange(sends, receives), buffers

    def landed(self, stage: Stage, coming: tuple[Transfer, list[torch.Tensor]]) -> list[torch.Tensor]:
        """The keys of a stage in global order."""
        transfer, buffers = coming
        transfer.wait()
        return [take_rows(self.comm, buffer, stage.order, self.kernel.layout) for buffer in buffers]

    def give_back(self, stage: Stage, grads: Sequence[torch.Tensor], totals: Sequence[Total]) -> Transfer:
        """Return dK and dV of a stage to their owners; what comes back for my keys is added in fp32."""
        going = [take_rows(self.comm, grad, stage.back, "LHD") for grad in grads]
        sends: list[Message] = [(owner, part[span]) for owner, span in stage.spans.items() for part in going]
        buffers = {
            rank: [self.comm.empty((len(index), *grad.shape[1:]), grad.dtype, "returned") for grad in grads]
            for rank, index in stage.wanted_by.items()
        }
        receives: list[Message] = [(rank, buffer) for rank, pair in buffers.items() for buffer in pair]

        def add() -> None:
            for rank, pair in buffers.items():
                for total, part in zip(totals, pair, strict=True):
                    into = total.buffer()
                    into.index_add_(0, stage.wanted_by[rank], part.to(into.dtype))
                    self.comm.note_work("merge", 2 * size_of(part) + size_of(part))
            buffers.clear()

        return self.returns.exchange(sends, receives).then(add)
