"""Hop: one leg of a route as one rank takes part in it. Keys go from rank to rank, and their gradients the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from longca.masks.bands import spread
from longca.parallel.comm.base import Comm, Message, Transfer, all_of
from longca.parallel.primitives.merge import Total
from longca.parallel.primitives.rows import Rows, add_rows, take_rows
from longca.parallel.ranges import Ranges, count, tokens
from longca.parallel.routes import Leg, Route


@dataclass(frozen=True)
class Channels:
    """What keys and gradients travel through, so that neither waits for the other. `first` is the number of its first rank among all."""

    keys: Comm
    gradients: Comm
    first: int = 0

    @classmethod
    def of(cls, comm: Comm, node: int, in_node: bool) -> Channels:
        """Those of all ranks, or those of this node of so many ranks: what nodes exchange does not wait for it."""
        if not in_node:
            return cls(comm, comm.sub(range(comm.size), "gradients"))
        first = comm.rank // node * node
        members = range(first, min(first + node, comm.size))
        return cls(comm.sub(members, "relays"), comm.sub(members, "relayed gradients"), first)


class Wanted(NamedTuple):
    """Some of the keys that a rank holds: how many, and which."""

    number: int
    rows: Rows


@dataclass(frozen=True)
class Post:
    """What this rank sends and receives at once: of one round, or of several small ones."""

    wanted_by: dict[int, Wanted]  # which of the keys here each rank wants
    spans: dict[int, slice]  # where each rank's keys land


class Hop:
    """Sends parts of the keys that this rank holds, and receives others, which land sender after sender."""

    def __init__(self, leg: Leg, held: Sequence[Ranges], rank: int, channels: Channels) -> None:
        """`held` are the keys that this rank has, one set behind the other."""
        self.channels = channels
        self.landing: list[Ranges] = []
        self.length = 0
        peers = leg.peers(rank)
        if leg.carries is not None and len(leg.message(rank, rank)):
            peers.insert(0, ([rank], [rank]))  # what it passes on to itself is copied
        places = _Places(held, channels.keys)
        self.posts = [
            Post(
                {to - channels.first: places.of(leg.message(to, rank)) for to in receivers},
                {source - channels.first: self._land(leg.message(rank, source)) for source in senders},
            )
            for receivers, senders in peers
        ]

    def _land(self, keys: Ranges) -> slice:
        first = self.length
        self.landing.append(keys)
        self.length += count(keys)
        return slice(first, self.length)

    def cast(self, held: Sequence[torch.Tensor], with_held: bool = False) -> tuple[Transfer, list[torch.Tensor]]:
        """Posts the keys, round after round: sends what others want of those here, receives what I want of theirs, behind a copy of those
        here if that is wanted."""
        comm = self.channels.keys
        first = len(held[0]) if with_held else 0
        whole = [comm.empty((first + self.length, *x.shape[1:]), x.dtype, "cast") for x in held]
        buffers = [x[first:] for x in whole] if first else whole
        transfers = []
        for post in self.posts:
            sends = [(rank, take_rows(x, wanted.rows, "LHD")) for rank, wanted in post.wanted_by.items() for x in held]
            receives = [(source, buffer[span]) for source, span in post.spans.items() for buffer in buffers]
            transfers.append(comm.exchange(sends, receives))
        if first:
            for x, own in zip(whole, held, strict=True):
                x[:first].copy_(own)
        return all_of(transfers), whole

    def give_back(self, grads: Sequence[torch.Tensor], totals: Sequence[Total]) -> Transfer:
        """Returns gradients to where their keys came from, round after round; what comes back for the keys here is added in fp32."""
        return all_of([self._return(post, grads, totals) for post in self.posts])

    def _return(self, post: Post, grads: Sequence[torch.Tensor], totals: Sequence[Total]) -> Transfer:
        comm = self.channels.gradients
        sends: list[Message] = [(source, part[span]) for source, span in post.spans.items() for part in grads]
        buffers = {
            rank: [comm.empty((wanted.number, *grad.shape[1:]), grad.dtype, "returned") for grad in grads]
            for rank, wanted in post.wanted_by.items()
        }
        receives: list[Message] = [(rank, buffer) for rank, pair in buffers.items() for buffer in pair]

        def add() -> None:
            for rank, pair in buffers.items():
                for total, part in zip(totals, pair, strict=True):
                    add_rows(total.buffer(), post.wanted_by[rank].rows, part)
            buffers.clear()

        return comm.exchange(sends, receives).then(add)


def hops_of(route: Route, held: Sequence[Ranges], comm: Comm, node: int) -> list[Hop]:
    """The hops of a route for this rank, which has these keys at first; the last one's `landing` are those that come."""
    hops = list[Hop]()
    for leg in route:
        hops.append(Hop(leg, held, comm.rank, Channels.of(comm, node, leg.in_node)))
        held = hops[-1].landing
    return hops


class _Places:
    """Where keys stand among those that a rank holds."""

    def __init__(self, held: Sequence[Ranges], comm: Comm) -> None:
        keys = np.concatenate([np.zeros((0, 2), np.int64), *held])
        length = keys[:, 1] - keys[:, 0]
        order = np.argsort(keys[:, 0], kind="stable")
        self.keys, self.first, self.comm = keys[order], (np.cumsum(length) - length)[order], comm

    def of(self, keys: Ranges) -> Wanted:
        runs, number = self._runs(keys), count(keys)
        if len(runs) == 1:
            return Wanted(number, slice(*runs[0].tolist()))
        if self.comm.shapes_only:  # of shapes only their number is asked for
            return Wanted(number, torch.empty(number, dtype=torch.int64, device=self.comm.device))
        return Wanted(number, torch.from_numpy(tokens(runs)).to(self.comm.device))

    def _runs(self, keys: Ranges) -> Ranges:
        """The places as ranges, in the order of the keys; those that follow one another are one."""
        start, end = self.keys.T
        which, place = spread(np.searchsorted(end, keys[:, 0], side="right"), np.searchsorted(start, keys[:, 1], side="left"))
        low, high = np.maximum(keys[which, 0], start[place]), np.minimum(keys[which, 1], end[place])
        runs = np.stack([low, high], 1) + (self.first - start)[place][:, None]
        opens = np.append(True, runs[1:, 0] != runs[:-1, 1])[: len(runs)]
        return np.stack([runs[opens, 0], runs[np.append(opens[1:], True)[: len(runs)], 1]], 1)
