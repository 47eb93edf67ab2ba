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
from longca.parallel.primitives.hop import Channels, Hop
from longca.parallel.primitives.local import LocalKernel, Piece
from longca.parallel.primitives.merge import Merger, Total
from longca.parallel.primitives.program import Gradients, Kept, Program, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Shards, count, joined, positions, row_slices
from longca.parallel.transfers import Needs, Route, routes

JOIN_BYTES = 1 << 20  # rounds of messages that are smaller together are posted at once


@dataclass(frozen=True)
class Stage:
    """Attention over keys that come together; without a hop it is the rank's own keys. `order` brings them from where they land into
    global order, `back` the other way."""

    piece: Piece | None
    rows: list[slice]  # that see one of the keys
    hop: Hop | None = None
    to_relays: Hop | None = None  # the hop before, by which they reach this node
    order: torch.Tensor | None = None
    back: torch.Tensor | None = None


Coming = tuple[Transfer, list[torch.Tensor]]  # buffers that may be read when the transfer has arrived
needs_of: Callable[[Mask, Shards], Needs] = once_for_all_ranks(Needs)
routes_of = lru_cache(maxsize=8)(routes)


class GroupCast(Program):
    """`stages`: in how many parts remote keys come, each beside the attention over the part before. Each part comes in rounds in which a
    rank sends to one rank and receives from one. `node`: how many neighbouring ranks share a node; keys of other nodes come by relays.
    """

    def __init__(
        self, kernel: LocalKernel, comm: Comm, mask: Mask, shards: Shards, heads: tuple[int, int], stages: int = 2, node: int = 1
    ) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, shards[comm.rank], heads
        case = kernel.case
        key_bytes = case.heads_kv * (case.head_dim + case.head_dim_v) * kernel.dtype.itemsize
        way = routes_of(needs_of(mask, shards), node, stages, JOIN_BYTES // key_bytes)
        rows = mask.rows(self.rows)  # type: ignore[arg-type]  # arrays are ranges too
        self.everywhere = Channels(comm, comm.sub(range(comm.size), "gradients"))
        self.inside = self.from_relays = self.everywhere
        if any(route.to_relays for route in way):
            first = comm.rank // node * node
            inside, back = (comm.sub(range(first, min(first + node, comm.size)), label) for label in ("node", "node gradients"))
            self.inside, self.from_relays = Channels(inside, back, first), Channels(inside.sub(range(inside.size), "relayed"), back, first)
        own = rows.cols(self.rows)  # type: ignore[arg-type]
        self.stages = [Stage(kernel.over(own), row_slices(own)), *(self._stage(route, rows) for route in way)]

    def _stage(self, route: Route, rows: Mask) -> Stage:
        me, held, to_relays = self.comm.rank, [(self.comm.rank, self.rows)], None
        if route.to_relays is not None:
            to_relays = Hop(route.to_relays, held, me, self.everywhere)
            held = to_relays.landing
        hop = Hop(route.last, held, me, self.inside if to_relays is None else self.from_relays)
        pieces = [keys for _, keys in hop.landing]
        keys = joined(np.concatenate([np.zeros((0, 2), np.int64), *pieces]))
        seen = rows.cols(keys)  # type: ignore[arg-type]
        if self.comm.shapes_only:
            order = back = torch.empty(count(keys), dtype=torch.int64, device=self.comm.device)
        else:
            place = np.concatenate([np.zeros(0, np.int64), *(positions(piece, keys) for piece in pieces)])
            order, back = (torch.from_numpy(index).to(self.comm.device) for index in (np.argsort(place, kind="stable"), place))
        return Stage(self.kernel.over(seen), row_slices(seen), hop, to_relays, order, back)

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Kept]:
        merger = Merger(self.kernel, q_LHD, v_LHD)
        for stage, (k, v) in self.arriving(self.stages, k_LHD, v_LHD):
            if stage.piece is not None:
                merger.add(stage.piece.rows, *stage.piece.forward(q_LHD, k, v), stage.rows)
        sinks = self.own_sinks(sinks_H)
        out, lse = merger.result(sinks)
        return out, Kept(q_LHD, k_LHD, v_LHD, out, lse, sinks)

    def backward(self, dout_LHD: torch.Tensor, kept: Kept) -> Gradients:
        dq, dk, dv = (Total(self.kernel, x.shape) for x in kept[:3])
        home = Home(self.kernel, (dk, dv))
        for stage, (k, v) in self.arriving(self.stages, kept.k, kept.v):
            grads = (dk, dv) if stage.hop is None else [Total(self.kernel, x.shape) for x in (k, v)]
            if stage.piece is not None:
                dq_part, *parts_kv = stage.piece.backward(dout_LHD, kept.q, k, v, kept.out, kept.lse)
                dq.add(stage.piece.rows, dq_part, stage.rows)
                for total, part in zip(grads, parts_kv, strict=True):
                    total.add(stage.piece.keys, part)
            home.send(stage, grads)
        home.wait()
        return with_sinks((dq.result(), dk.result(), dv.result()), dout_LHD, kept)

    def arriving(self, stages: Sequence[Stage], *own: torch.Tensor) -> Iterator[tuple[Stage, list[torch.Tensor]]]:
        """Each stage with its keys in global order. Beside the attention over them the keys of the next stage come, and from the beginning
        on all those that go to relays."""
        arrivals = [Arrival(stage, own, self.comm) for stage in stages]
        for number, stage in enumerate(stages):
            keys = [take_rows(x, stage.order, self.kernel.layout) for x in arrivals[number].wait()]
            if number + 1 < len(stages) and (number or stages[number + 1].to_relays is None):
                arrivals[number + 1].post()
            yield stage, keys
            if not number:  # a device has its first attention to do now, and time to pass on keys
                for arrival in arrivals:
                    arrival.pass_on()


class Arrival:
    """The keys of a stage on their way. Those that go to relays leave at once."""

    def __init__(self, stage: Stage, own: Sequence[torch.Tensor], comm: Comm) -> None:
        self.comm, self.hop = comm, stage.hop
        self.held: Coming = (Transfer(), list(own)) if stage.to_relays is None else stage.to_relays.cast(own)
        self.relays = stage.to_relays is not None
        self.posting = self._cast
        self.coming: Coming | None = None

    def _cast(self) -> Coming:
        (arrived, held), self.held = self.held, (Transfer(), [])
        arrived.wait()
        return (Transfer(), held) if self.hop is None else self.hop.cast(held)

    def pass_on(self) -> None:
        """As a relay: posts the last hop beside attention, as soon as there are keys."""
        if self.relays:
            self.posting = self.comm.beside(self._cast)

    def post(self) -> None:
        """Posts the last hop, where that is not done yet."""
        self.coming = self.coming or self.posting()

    def wait(self) -> list[torch.Tensor]:
        """The keys, where they land."""
        self.post()
        assert self.coming is not None
        (transfer, keys), self.coming = self.coming, (Transfer(), [])
        transfer.wait()
        return keys


class Home:
    """Gradients on their way to the owners of the keys. A relay adds up what its node returns for a key, and sends one sum."""

    def __init__(self, kernel: LocalKernel, own: Sequence[Total]) -> None:
        self.kernel, self.own = kernel, own
        self.first, self.second = Transfer(), list[Transfer]()

    def send(self, stage: Stage, grads: Sequence[Total]) -> None:
        """Returns the gradients of a stage, once those of the stage before have arrived."""
        if stage.hop is None:
            return
        self.first.wait()
        going = [take_rows(total.result(), stage.back, "LHD") for total in grads]
        if stage.to_relays is None:
            self.first = stage.hop.give_back(going, self.own)
            return
        relays, sums = stage.to_relays, [Total(self.kernel, (stage.to_relays.length, *x.shape[1:])) for x in going]
        inside = stage.hop.give_back(going, sums)

        def pass_on() -> Transfer:
            inside.wait()
            return relays.give_back([total.result() for total in sums], self.own)

        passed_on = self.kernel.comm.beside(pass_on)
        self.first = Transfer(lambda: self.second.append(passed_on()))

    def wait(self) -> None:
        self.first.wait()
        all_of(self.second).wait()
