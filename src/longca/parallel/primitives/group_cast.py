"""GroupCast: every rank receives exactly the keys that its rows can see, in stages beside the attention, and returns their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from longca.masks import Mask
from longca.parallel.comm.base import Comm, Transfer, all_of
from longca.parallel.cuts import once_for_all_ranks
from longca.parallel.primitives.hop import Hop, hops_of
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Shards, count, joined, positions, row_slices
from longca.parallel.routes import Route, routes
from longca.parallel.transfers import Needs

JOIN_BYTES = 1 << 20  # rounds of messages that are smaller together are posted at once


@dataclass(frozen=True)
class Stage:
    """Attention over keys that come together, in one hop or in several; without any it is the rank's own keys. `order` brings them from
    where they land into global order, `back` the other way; `own` keys of this rank stand before those that land."""

    piece: Piece | None
    rows: list[slice]  # that see one of the keys
    hops: Sequence[Hop] = ()
    order: torch.Tensor | None = None
    back: torch.Tensor | None = None
    own: int = 0


Coming = tuple[Transfer, list[torch.Tensor]]  # buffers that may be read when the transfer has arrived
needs_of: Callable[[Mask, Shards], Needs] = once_for_all_ranks(Needs)
routes_of = lru_cache(maxsize=8)(routes)


class GroupCast(Program):
    """`stages`: in how many parts remote keys come, each beside the attention over the part before; 0: without relays, all keys are
    attended to in one call when they are there, so that nothing is hidden and nothing merged. Each part comes in rounds in which a rank
    sends to one rank and receives from one. `node`: how many neighbouring ranks share a node; keys of other nodes come by relays.
    """

    def __init__(
        self, kernel: LocalKernel, comm: Comm, mask: Mask, shards: Shards, heads: tuple[int, int], stages: int = 2, node: int = 1
    ) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        case = kernel.case
        key_bytes = case.heads_kv * (case.head_dim + case.head_dim_v) * kernel.dtype.itemsize
        way = routes_of(needs_of(mask, shards), node, max(1, stages), JOIN_BYTES // key_bytes)
        rows = mask.rows(self.rows)  # type: ignore[arg-type]  # arrays are ranges too
        self.node = node
        if stages == 0 and [len(route) for route in way] == [1]:
            self.stages = [self._stage(way[0], rows, joined_with_own=True)]
        else:
            own = rows.cols(self.rows)  # type: ignore[arg-type]
            self.stages = [Stage(kernel.over(own), row_slices(own)), *(self._stage(route, rows) for route in way)]
        self.relayed = len(self.stages[-1].hops) > 1
        # keys of the own node cover the way of other keys forward, and the way back of their gradients backward
        self.stages_backward = [self.stages[0], *self.stages[2:], self.stages[1]] if self.relayed else self.stages

    def _stage(self, route: Route, rows: Mask, joined_with_own: bool = False) -> Stage:
        hops = hops_of(route, [self.rows], self.comm, self.node)
        held = [self.rows, *hops[-1].landing] if joined_with_own else hops[-1].landing
        keys = joined(np.concatenate([np.zeros((0, 2), np.int64), *held]))
        seen = rows.cols(keys)  # type: ignore[arg-type]
        if self.comm.shapes_only:
            order = back = torch.empty(count(keys), dtype=torch.int64, device=self.comm.device)
        else:
            place = np.concatenate([np.zeros(0, np.int64), *(positions(part, keys) for part in held)])
            order, back = (torch.from_numpy(index).to(self.comm.device) for index in (np.argsort(place, kind="stable"), place))
        return Stage(self.kernel.over(seen), row_slices(seen), hops, order, back, count(self.rows) if joined_with_own else 0)

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        for stage, (k, v) in self.arriving(self.stages, k_LHD, v_LHD):
            if stage.piece is not None:
                merger.add(stage.piece.rows, *stage.piece.forward(q_LHD, k, v), stage.rows)
        sinks = self.own_sinks(sinks_H)
        out, lse = merger.result(sinks)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in saved[:3])
        home = Home(self.kernel, (dk, dv))
        for stage, (k, v) in self.arriving(self.stages_backward, saved.k, saved.v):
            grads = (dk, dv) if not stage.hops else [Total(self.kernel, x.shape) for x in (k, v)]
            if stage.piece is not None:
                dq_part, *parts_kv = stage.piece.backward(dout_LHD, saved.q, k, v, saved.out, saved.lse)
                dq.add(stage.piece.rows, dq_part, stage.rows)
                for total, part in zip(grads, parts_kv, strict=True):
                    total.add(stage.piece.keys, part)
            home.send(stage, grads)
        home.wait()
        return with_sinks((dq.result(), dk.result(), dv.result()), dout_LHD, saved)

    def arriving(self, stages: Sequence[Stage], *own: torch.Tensor) -> Iterator[tuple[Stage, list[torch.Tensor]]]:
        """Each stage with its keys in global order. Beside the attention over them the keys of the next stage come; with relays, all keys
        take their first hop at once, and the next ones beside the attention over the rank's own keys and later."""
        arrivals = [Arrival(stage, own, at_once=self.relayed) for stage in stages]
        for number, stage in enumerate(stages):
            keys = [take_rows(x, stage.order, self.kernel.layout) for x in arrivals[number].wait()]
            if arrivals[number + 1 :] and not (self.relayed and number == 0):  # relays have nothing to pass on yet
                arrivals[number + 1].post()
            yield stage, keys
            if self.relayed and number == 0:
                for arrival in arrivals:
                    arrival.pass_on(self.comm)
        if self.relayed:
            self.comm.join()  # keys that this rank alone sends may still be under way, and the caller may change them now


class Arrival:
    """The keys of a stage on their way."""

    def __init__(self, stage: Stage, own: Sequence[torch.Tensor], at_once: bool) -> None:
        self.hops, self.with_own = list(stage.hops), stage.own > 0
        self.coming: Coming = self.hops.pop(0).cast(own) if at_once and self.hops else (Transfer(), list(own))
        self.take_hops: Callable[[], Coming] | None = self._take_hops

    def _take_hops(self) -> Coming:
        """Takes the hops that are left, one after the other; the last one is under way then."""
        coming, self.coming = self.coming, (Transfer(), [])
        for hop in self.hops:
            arrived, held = coming
            arrived.wait()
            coming = hop.cast(held, self.with_own)
        return coming

    def pass_on(self, comm: Comm) -> None:
        """Takes the hops that are left beside attention."""
        if self.hops:
            self.take_hops = comm.beside(self._take_hops)

    def post(self) -> None:
        """Takes all hops, where that is not done yet."""
        if self.take_hops is not None:
            self.coming, self.take_hops = self.take_hops(), None

    def wait(self) -> list[torch.Tensor]:
        """The keys, as they land."""
        self.post()
        (transfer, keys), self.coming = self.coming, (Transfer(), [])
        transfer.wait()
        return keys


class Home:
    """Gradients on their way to the owners of the keys. Where several hops are to take, what ranks return for a key is added up in fp32 at
    each of them, and the sum goes on."""

    def __init__(self, kernel: LocalKernel, own: Sequence[Total]) -> None:
        self.kernel, self.own = kernel, own
        self.first, self.last = Transfer(), list[Transfer]()

    def send(self, stage: Stage, grads: Sequence[Total]) -> None:
        """Returns the gradients of a stage, once those of the stage before are one hop further."""
        if not stage.hops:
            return
        self.first.wait()
        going = [take_rows(total.result(), stage.back, "LHD") for total in grads]
        if stage.own:
            for total, part in zip(self.own, going, strict=True):
                total.add(slice(0, stage.own), part[: stage.own])
            going = [part[stage.own :] for part in going]
        sums = [self.own, *([Total(self.kernel, (hop.length, *x.shape[1:])) for x in going] for hop in stage.hops[:-1])]
        first = stage.hops[-1].give_back(going, sums[-1])
        if len(stage.hops) == 1:
            self.first = first
            return

        def pass_on() -> Transfer:
            returning = first
            for number in range(len(stage.hops) - 1, 0, -1):
                returning.wait()
                going = [take_rows(total.result(self.kernel.accumulate), None, "LHD") for total in sums.pop()]
                returning = stage.hops[number - 1].give_back(going, sums[-1])
            return returning

        passed_on = self.kernel.comm.beside(pass_on)
        self.first = Transfer(lambda: self.last.append(passed_on()))

    def wait(self) -> None:
        self.first.wait()
        all_of(self.last).wait()
