"""Which keys every rank needs of every other one, the way that they take, and the rounds in which they travel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from longca.masks import Mask
from longca.masks.bands import Ints, split_rows, spread
from longca.parallel.ranges import Ranges, Shards, joined

Round = dict[int, int]  # {receiver: sender}
Part = tuple[int, Ranges]  # an owner, and some of its keys


class Needs:
    """The keys that each rank's rows see, by owner. `sizes[rank, owner]` counts them; what a rank has itself stands on the diagonal.

    With `node` the viewers are nodes of so many ranks: what at least one rank of the node sees.
    """

    def __init__(self, mask: Mask, shards: Shards, node: int = 1) -> None:
        self.mask, self.shards, self.ranks, self.node = mask, shards, len(shards), node
        viewers = -(-self.ranks // node)
        owned = np.concatenate(shards)
        owner = np.repeat(np.arange(self.ranks), [len(shard) for shard in shards])
        order = np.argsort(owned[:, 0], kind="stable")
        owned, owner = owned[order], owner[order]
        rows = split_rows(mask.bands, np.unique(owned))
        viewer = owner[np.searchsorted(owned[:, 0], rows.q0, side="right") - 1] // node
        stride = mask.seqlen_k + 1  # the keys of each viewer lie apart, so that all of them are joined at once
        seen = joined(np.stack([rows.lo, rows.hi_last], 1) + (viewer * stride)[:, None])
        viewer = seen[:, 0] // stride
        seen = seen - (viewer * stride)[:, None]
        which, place = spread(np.searchsorted(owned[:, 1], seen[:, 0], side="right"), np.searchsorted(owned[:, 0], seen[:, 1], side="left"))
        keys = np.stack([np.maximum(seen[which, 0], owned[place, 0]), np.minimum(seen[which, 1], owned[place, 1])], 1)
        pair = viewer[which] * self.ranks + owner[place]
        order = np.argsort(pair, kind="stable")
        self._keys, pair = keys[order], pair[order]
        self._first = np.searchsorted(pair, np.arange(viewers * self.ranks + 1))
        before = np.append(0, np.cumsum(self._keys[:, 1] - self._keys[:, 0]))
        self.sizes: Ints = np.diff(before[self._first]).reshape(viewers, self.ranks)

    def keys(self, rank: int, owner: int) -> Ranges:
        """The keys of `owner` that `rank`, or its node, needs."""
        pair = rank // self.node * self.ranks + owner
        return self._keys[self._first[pair] : self._first[pair + 1]]

    def of_nodes(self, node: int) -> Needs:
        """The same keys as nodes of so many ranks need them."""
        return Needs(self.mask, self.shards, node)


def rounds(sizes: Ints) -> list[Round]:
    """Rounds of transfers in which every rank sends to one rank and receives from one, as few as the busiest rank needs.

    A colouring of the edges of a bipartite graph (König): each transfer takes the first round in which both its ends are free; where
    there is none, transfers of two rounds change places along a path until there is. The largest are given rounds first, so that those
    of one round are of like size.
    """
    ranks = len(sizes)
    needed = (sizes > 0) & ~np.eye(ranks, dtype=bool)
    receiver, sender = np.nonzero(needed)
    order = np.lexsort(((receiver - sender) % ranks, -sizes[receiver, sender]))
    number = int(max(needed.sum(0).max(), needed.sum(1).max()))
    free = [[(1 << number) - 1] * ranks for _ in range(2)]  # of receivers and of senders: a bit for each round
    at: list[list[dict[int, int]]] = [[{} for _ in range(ranks)] for _ in range(2)]  # the other end, by round
    for pair in zip(receiver[order].tolist(), sender[order].tolist(), strict=True):
        both = free[0][pair[0]] & free[1][pair[1]]
        if not both:
            both = _make_free(free, at, pair)
        first = (both & -both).bit_length() - 1
        for side in range(2):
            free[side][pair[side]] ^= 1 << first
            at[side][pair[side]][first] = pair[1 - side]
    found = [{rank: at[0][rank][turn] for rank in range(ranks) if turn in at[0][rank]} for turn in range(number)]
    return [transfers for transfers in found if transfers]


def in_stages(turns: list[Round], sizes: Ints, stages: int, small: int) -> list[list[list[Round]]]:
    """Rounds divided into at most so many stages that take about equal time. A stage is a list of posts, and a post is one round, or
    several that follow one another and whose largest transfers have no more than `small` keys together."""
    cost = [max(int(sizes[pair]) for pair in turn.items()) for turn in turns]
    total, done, joined_cost = sum(cost), 0, 0
    plan, stage = list[list[list[Round]]](), -1
    for turn, keys in zip(turns, cost, strict=True):
        if plan and joined_cost + keys <= small:
            plan[-1][-1].append(turn)
            joined_cost += keys
        else:
            if not plan or (2 * done + keys) * stages // (2 * total) > stage:
                plan.append([])
                stage = (2 * done + keys) * stages // (2 * total)
            plan[-1].append([turn])
            joined_cost = keys
        done += keys
    return plan


def _make_free(free: list[list[int]], at: list[list[dict[int, int]]], pair: tuple[int, int]) -> int:
    """A round, as a bit, that is free at both ends after transfers of two rounds have changed places along the path from the sender."""
    wanted, other = ((free[side][pair[side]] & -free[side][pair[side]]).bit_length() - 1 for side in range(2))
    path, side, end, turn = [(1, pair[1])], 1, pair[1], wanted
    while turn in at[side][end]:
        side, end, turn = 1 - side, at[side][end][turn], other if turn == wanted else wanted
        path.append((side, end))
    for side, end in path:
        mine = at[side][end]
        swapped = {there: mine.pop(here) for here, there in ((wanted, other), (other, wanted)) if here in mine}
        mine.update(swapped)
        if len(swapped) == 1:
            free[side][end] ^= 1 << wanted | 1 << other
    return 1 << wanted


class Leg:
    """Messages between ranks that make one hop of a route, in posts of rounds; the same on all ranks.

    A sender passes on keys of the owners that it `carries`; of its own where nothing is said.
    """

    def __init__(self, needs: Needs, posts: Sequence[Sequence[Round]], carries: Mapping[int, Sequence[int]] | None = None) -> None:
        self._needs, self.carries = needs, carries
        self._posts = [(post, [{sender: receiver for receiver, sender in turn.items()} for turn in post]) for post in posts]

    def message(self, receiver: int, sender: int) -> list[Part]:
        """What goes from one rank to another; a rank that carries keys has a message for itself too."""
        owners = [sender] if self.carries is None else self.carries.get(sender, ())
        parts = [(owner, self._needs.keys(receiver, owner)) for owner in owners]
        return [part for part in parts if len(part[1])]

    def peers(self, rank: int) -> list[tuple[list[int], list[int]]]:
        """For each post the ranks that this one sends to, and those that it receives from."""
        return [
            ([turn[rank] for turn in receiver_of if rank in turn], [turn[rank] for turn in sender_of if rank in turn])
            for sender_of, receiver_of in self._posts
        ]


@dataclass(frozen=True)
class Route:
    """How the keys of one stage come: straight from their owners, or by relays, which get them on a leg before."""

    last: Leg
    to_relays: Leg | None = None


def routes(needs: Needs, node: int, stages: int, small: int) -> list[Route]:
    """The way of all keys that ranks need of others, stage after stage.

    Between two nodes of `node` ranks a key travels once, to the relay in the node of the viewers that has the owner's place there, so that
    all adapters are used. The relay passes on to each rank of its node what that rank sees. Keys of the own node come first, in one stage.
    Nodes of one rank, or one node for all ranks, need no relays.
    """
    if node == 1 or node >= needs.ranks:
        return [Route(Leg(needs, posts)) for posts in in_stages(rounds(needs.sizes), needs.sizes, stages, small)]
    number = np.arange(needs.ranks)
    near = np.where(number[:, None] // node == number // node, needs.sizes, 0)
    way = [Route(Leg(needs, posts)) for posts in in_stages(rounds(near), near, 1, small) or [[]]]
    together = needs.of_nodes(node)
    between = np.zeros_like(needs.sizes)
    for place in range(len(together.sizes)):
        first, size = place * node, min(node, needs.ranks - place * node)
        others = number[number // node != place]
        between[first + others % node % size, others] = together.sizes[place, others]
    for posts in in_stages(rounds(between), between, stages, small):
        carries: dict[int, list[int]] = {}
        inside = np.zeros_like(needs.sizes)
        for relay, owner in (pair for post in posts for turn in post for pair in turn.items()):
            carries.setdefault(relay, []).append(owner)
            viewers = slice(relay // node * node, relay // node * node + node)
            inside[viewers, relay] += needs.sizes[viewers, owner]
        last = in_stages(rounds(inside), inside, 1, small) or [[]]  # nothing is passed on where relays alone see the keys
        way.append(Route(Leg(needs, last[0], carries), Leg(together, posts)))
    return way
