"""Which keys every rank needs of every other one, and the rounds in which they travel."""

from __future__ import annotations

import numpy as np

from longca.masks import Mask
from longca.masks.bands import Ints, split_rows, spread
from longca.parallel.ranges import Ranges, Shards, joined

Round = dict[int, int]  # {receiver: sender}


class Table:
    """Keys by viewer and by owner. `sizes[viewer, owner]` counts them."""

    def __init__(self, viewer: Ints, seen: Ranges, owners: Shards, viewers: int) -> None:
        """`seen` are disjoint ranges for each viewer, which may be of several owners."""
        self.owners, owned, owner = len(owners), *_in_order(owners)
        which, place = spread(np.searchsorted(owned[:, 1], seen[:, 0], side="right"), np.searchsorted(owned[:, 0], seen[:, 1], side="left"))
        keys = np.stack([np.maximum(seen[which, 0], owned[place, 0]), np.minimum(seen[which, 1], owned[place, 1])], 1)
        pair = viewer[which] * self.owners + owner[place]
        order = np.argsort(pair, kind="stable")
        self._keys, pair = keys[order], pair[order]
        self._first = np.searchsorted(pair, np.arange(viewers * self.owners + 1))
        before = np.append(0, np.cumsum(self._keys[:, 1] - self._keys[:, 0]))
        self.sizes: Ints = np.diff(before[self._first]).reshape(viewers, self.owners)

    def keys(self, viewer: int, owner: int) -> Ranges:
        """The keys of `owner` that `viewer` sees."""
        pair = viewer * self.owners + owner
        return self._keys[self._first[pair] : self._first[pair + 1]]


class Needs(Table):
    """The keys that each rank's rows see, by owner; what a rank has itself stands on the diagonal.

    With `node` the viewers are nodes of so many ranks: what at least one rank of the node sees. Other `owners` may be given than the ranks.
    """

    def __init__(self, mask: Mask, shards: Shards, node: int = 1, owners: Shards | None = None) -> None:
        self.mask, self.shards, self.ranks = mask, shards, len(shards)
        owned, owner = _in_order(shards)
        rows = split_rows(mask.bands, np.unique(owned))
        viewer = owner[np.searchsorted(owned[:, 0], rows.q0, side="right") - 1] // node
        stride = mask.seqlen_k + 1  # the keys of each viewer lie apart, so that all of them are joined at once
        seen = joined(np.stack([rows.lo, rows.hi_last], 1) + (viewer * stride)[:, None])
        viewer = seen[:, 0] // stride
        super().__init__(viewer, seen - (viewer * stride)[:, None], owners or shards, -(-self.ranks // node))

    def seen_by(self, node: int = 1, owners: Shards | None = None) -> Needs:
        """What nodes of so many ranks need, or of other owners."""
        return Needs(self.mask, self.shards, node, owners)


def _in_order(shards: Shards) -> tuple[Ranges, Ints]:
    """All ranges in order, and whose they are."""
    owned = np.concatenate(shards)
    owner = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
    order = np.argsort(owned[:, 0], kind="stable")
    return owned[order], owner[order]


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
    of_rounds = [{rank: at[0][rank][turn] for rank in range(ranks) if turn in at[0][rank]} for turn in range(number)]
    return [transfers for transfers in of_rounds if transfers]


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
