"""The way that keys take from their owners to the ranks that see them: straight, or once between two nodes and on by relays."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from longca.masks.bands import Ints
from longca.parallel.ranges import Ranges, Shards, joined
from longca.parallel.transfers import Needs, Round, Table, in_stages, rounds

EVEN = 1.25  # the load of the busiest adapter of a node, over the mean, up to which every rank sends its own keys to other nodes


class Leg:
    """Messages between ranks that make one hop of a route, in posts of rounds; the same on all ranks.

    A message is what its receiver, or the receiver's node, sees of the sender's keys in the table; or of the keys of all those that the
    sender `carries`. Then a rank has a message for itself too.
    """

    def __init__(
        self,
        table: Table,
        posts: Sequence[Sequence[Round]],
        in_node: bool = False,
        node: int = 1,
        carries: Mapping[int, Sequence[int]] | None = None,
    ) -> None:
        self.table, self.in_node, self.node, self.carries = table, in_node, node, carries
        self._posts = [(post, [{sender: receiver for receiver, sender in turn.items()} for turn in post]) for post in posts]

    def message(self, receiver: int, sender: int) -> Ranges:
        """The keys that go from one rank to another."""
        owners = [sender] if self.carries is None else self.carries.get(sender, ())
        return joined(np.concatenate([np.zeros((0, 2), np.int64), *(self.table.keys(receiver // self.node, owner) for owner in owners)]))

    def peers(self, rank: int) -> list[tuple[list[int], list[int]]]:
        """For each post the ranks that this one sends to, and those that it receives from."""
        return [
            ([turn[rank] for turn in receiver_of if rank in turn], [turn[rank] for turn in sender_of if rank in turn])
            for sender_of, receiver_of in self._posts
        ]


Route = list[Leg]  # of the keys of one stage, hop after hop


def routes(needs: Needs, node: int, stages: int, small: int) -> list[Route]:
    """The way of all keys that ranks need of others, stage after stage.

    Between two nodes of `node` ranks a key travels once, from the rank that carries it to the relay that has the same place in the other
    node. The relay passes on to each rank of its node what that rank sees. A rank carries its own keys, unless that would keep one adapter
    of the node far busier than the others; then keys go to other carriers of the node first. Keys of the own node come straight, in a first
    stage. Nodes of one rank, or one node for all ranks, need no relays.
    """
    if node == 1 or node >= needs.ranks:
        return [[Leg(needs, posts)] for posts in in_stages(rounds(needs.sizes), needs.sizes, stages, small)]
    number = np.arange(needs.ranks)
    near = np.where(number[:, None] // node == number // node, needs.sizes, 0)
    way = [[Leg(needs, _one_stage(near, small), in_node=True)]]
    together = needs.seen_by(node)
    carriers = _carriers(together, needs.shards, node)
    if carriers is not None:
        needs, together = needs.seen_by(1, carriers), needs.seen_by(node, carriers)
    between = _between(together.sizes, node)
    for posts in in_stages(rounds(between), between, stages, small):
        pairs = [pair for post in posts for turn in post for pair in turn.items()]
        carries: dict[int, list[int]] = {}
        inside = np.zeros_like(between)
        for relay, carrier in pairs:
            carries.setdefault(relay, []).append(carrier)
            viewers = slice(relay // node * node, relay // node * node + node)
            inside[viewers, relay] += needs.sizes[viewers, carrier]
        legs = [Leg(together, posts, node=node), Leg(needs, _one_stage(inside, small), in_node=True, carries=carries)]
        way.append(legs if carriers is None else [_to_carriers(together, pairs, needs.shards, node, small), *legs])
    return way


def _to_carriers(together: Table, pairs: Sequence[tuple[int, int]], shards: Shards, node: int, small: int) -> Leg:
    """The leg on which those who carry keys to these relays get them from their owners."""
    seen: list[list[Ranges]] = [[np.zeros((0, 2), np.int64)] for _ in shards]
    for relay, carrier in pairs:
        seen[carrier].append(together.keys(relay // node, carrier))
    keys = [joined(np.concatenate(several)) for several in seen]
    carriers = np.repeat(np.arange(len(shards)), [len(several) for several in keys])
    wanted = Table(carriers, np.concatenate(keys), shards, len(shards))
    return Leg(wanted, _one_stage(wanted.sizes, small), in_node=True, carries={rank: [rank] for rank in range(len(shards))})


def _one_stage(sizes: Ints, small: int) -> list[list[Round]]:
    stages = in_stages(rounds(sizes), sizes, 1, small)
    return stages[0] if stages else []


def _between(sizes: Ints, node: int) -> Ints:
    """The keys that go to each relay from each carrier, of those that each node sees of each carrier's."""
    ranks = sizes.shape[1]
    number, table = np.arange(ranks), np.zeros((ranks, ranks), np.int64)
    for place in range(len(sizes)):
        first, size = place * node, min(node, ranks - place * node)  # the last node may have fewer ranks
        others = number[number // node != place]
        table[first + others % node % size, others] = sizes[place, others]
    return table


class _Loads(NamedTuple):
    """Ranges of keys, and how many nodes they go to."""

    keys: Ranges
    nodes: Ints

    @classmethod
    def of(cls, seen: Sequence[Ranges]) -> _Loads:
        """From the keys that each of the nodes sees."""
        starts, ends = (np.concatenate([np.zeros(0, np.int64), *(keys[:, side] for keys in seen)]) for side in range(2))
        edges = np.unique(np.concatenate([starts, ends]))
        change = np.bincount(np.searchsorted(edges, starts), minlength=len(edges)) - np.bincount(
            np.searchsorted(edges, ends), minlength=len(edges)
        )
        nodes = np.cumsum(change)[:-1]
        return cls(np.stack([edges[:-1], edges[1:]], 1)[nodes > 0], nodes[nodes > 0])

    @property
    def total(self) -> int:
        return int(((self.keys[:, 1] - self.keys[:, 0]) * self.nodes).sum())

    def part(self, first: int, last: int) -> _Loads:
        """Of all loads one after the other those from `first` to `last`, to within one key."""
        length = self.keys[:, 1] - self.keys[:, 0]
        before = np.cumsum(length * self.nodes) - length * self.nodes
        low, high = (self.keys[:, 0] + np.clip((edge - before) // self.nodes, 0, length) for edge in (first, last))
        some = high > low
        return _Loads(np.stack([low, high], 1)[some], self.nodes[some])


def _carriers(together: Table, shards: Shards, node: int) -> Shards | None:
    """The keys that each rank sends to other nodes, so that the ranks of a node send equally much; None where owners nearly do."""
    ranks, carried, uneven = len(shards), list[Ranges](), False
    for first in range(0, ranks, node):
        others = [place for place in range(len(together.sizes)) if place != first // node]
        owners = range(first, min(first + node, ranks))
        loads = [_Loads.of([together.keys(place, rank) for place in others]) for rank in owners]
        load = together.sizes[others][:, owners].sum(0)
        mean = -(-int(load.sum()) // len(owners))
        uneven |= int(load.max()) > EVEN * mean
        kept = np.minimum(load, mean)
        beyond = [of_owner.part(own, total) for of_owner, own, total in zip(loads, kept.tolist(), load.tolist(), strict=True)]
        rest = _Loads(np.concatenate([part.keys for part in beyond]), np.concatenate([part.nodes for part in beyond]))
        room = [0, *np.cumsum(mean - kept)[:-1].tolist(), rest.total]  # the last one takes what roundings left over
        for of_owner, own, (start, end) in zip(loads, kept.tolist(), itertools.pairwise(room), strict=True):
            carried.append(joined(np.concatenate([of_owner.part(0, own).keys, rest.part(start, end).keys])))
    return tuple(carried) if uneven else None
