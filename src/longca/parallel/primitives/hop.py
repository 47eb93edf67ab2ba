"""Hop: one leg of a route as one rank takes part in it. Keys go from rank to rank, and their gradients the way back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from longca.parallel.comm.base import Comm, Message, Transfer, all_of
from longca.parallel.primitives.merge import Total
from longca.parallel.primitives.rows import Rows, add_rows, take_rows
from longca.parallel.ranges import as_array, count, positions
from longca.parallel.transfers import Leg, Part


@dataclass(frozen=True)
class Channels:
    """What keys and gradients travel through, so that neither waits for the other. `first` is the number of its first rank among all."""

    keys: Comm
    gradients: Comm
    first: int = 0


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

    def __init__(self, leg: Leg, held: Sequence[Part], rank: int, channels: Channels) -> None:
        self.channels, self.rank = channels, rank
        self.landing: list[Part] = []
        self.length = 0
        peers = leg.peers(rank)
        if leg.message(rank, rank) and leg.carries is not None:
            peers.insert(0, ([rank], [rank]))  # a relay's own share, which is copied
        places = _Places(held, channels.keys)
        self.posts = [
            Post(
                {to - channels.first: places.of(leg.message(to, rank)) for to in receivers},
                {source - channels.first: self._land(leg.message(rank, source)) for source in senders},
            )
            for receivers, senders in peers
        ]

    def _land(self, parts: list[Part]) -> slice:
        first = self.length
        self.landing += parts
        self.length += sum(count(keys) for _, keys in parts)
        return slice(first, self.length)

    def cast(self, held: Sequence[torch.Tensor]) -> tuple[Transfer, list[torch.Tensor]]:
        """Posts the keys, round after round: sends what others want of those here, receives what I want of theirs."""
        comm = self.channels.keys
        buffers = [comm.empty((self.length, *x.shape[1:]), x.dtype, "cast") for x in held]
        transfers = []
        for post in self.posts:
            sends = [(rank, take_rows(x, wanted.rows, "LHD")) for rank, wanted in post.wanted_by.items() for x in held]
            receives = [(source, buffer[span]) for source, span in post.spans.items() for buffer in buffers]
            transfers.append(comm.exchange(sends, receives))
        return all_of(transfers), buffers

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


class _Places:
    """Where keys stand among those that a rank holds, one owner's after the other."""

    def __init__(self, held: Sequence[Part], comm: Comm) -> None:
        edges = np.append(0, np.cumsum([count(keys) for _, keys in held], dtype=np.int64))
        self.first = {owner: int(edge) for (owner, _), edge in zip(held, edges[:-1], strict=True)}
        self.keys, self.comm = dict(held), comm

    def of(self, parts: list[Part]) -> Wanted:
        number = sum(count(keys) for _, keys in parts)
        if run := self._run(parts):
            return Wanted(number, run)
        if self.comm.shapes_only:  # of shapes only their number is asked for
            return Wanted(number, torch.empty(number, dtype=torch.int64, device=self.comm.device))
        places = [self.first[owner] + positions(keys, self.keys[owner]) for owner, keys in parts]
        return Wanted(number, torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *places])).to(self.comm.device))

    def _run(self, parts: list[Part]) -> slice | None:
        """The keys as a run, where they stand one after the other: no index is needed then, and no copy."""
        if len(parts) != 1:
            return None
        (owner, keys), = parts
        first, last = (int(positions(as_array([(token, token + 1)]), self.keys[owner])[0]) for token in (keys[0, 0], keys[-1, 1] - 1))
        return slice(self.first[owner] + first, self.first[owner] + last + 1) if last + 1 - first == count(keys) else None
