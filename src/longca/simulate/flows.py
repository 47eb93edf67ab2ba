"""Flows that share links fairly (max-min): none can get more without taking it from one that has less or as much.

Links are numbers. Rates are computed again only for flows that are connected, through links that they share, with one that starts or
ends. Many flows that are connected are kept in arrays, and end together where their ends lie within a small part of their duration.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALL = 40  # connected flows up to which plain loops are faster than arrays
TOGETHER = 0.04  # part of its duration by which one of many flows may end early, beside another one
LEVELS = 10  # links that are filled one after the other before the rest of many flows gets what is free on each of its links
LINKS = 4  # of one flow at most


class Flow:
    """A number of bytes on their way over some links. `owner` is what the flow belongs to; `limit` is its highest rate, in bytes/s."""

    __slots__ = ("changed", "left", "limit", "links", "owner", "rate")

    def __init__(self, owner: object, size: float, links: Sequence[int], limit: float = float("inf")) -> None:
        self.owner, self.left, self.links, self.limit = owner, float(size), tuple(links), limit
        self.rate = self.changed = 0.0

    def ends(self) -> float:
        return self.changed + self.left / self.rate


class Few:
    """Connected flows, few of them."""

    def __init__(self, flows: list[Flow], now: float, capacities: Sequence[float]) -> None:
        self.flows = flows
        for flow in flows:
            flow.left = max(0.0, flow.left - flow.rate * (now - flow.changed))
            flow.changed = now
        fair_rates(flows, capacities)
        self.next = min(flow.ends() for flow in flows)

    def take_ended(self, now: float) -> list[Flow]:
        ended = [flow for flow in self.flows if flow.ends() <= now * (1 + 1e-12)]
        gone = set(ended)
        self.flows = [flow for flow in self.flows if flow not in gone]
        return ended


class Many:
    """Connected flows in arrays."""

    def __init__(self, flows: list[Flow], now: float, capacities: NDArray[np.float64], shared: bool = True) -> None:
        self.capacities = capacities  # the last one is infinite: it stands where a flow has fewer links
        self.flows: NDArray[Any] = np.array(flows, object)
        self.left = np.array([max(0.0, flow.left - flow.rate * (now - flow.changed)) for flow in flows])
        self.limit = np.array([flow.limit for flow in flows])
        none = len(capacities) - 1
        self.links = np.array([flow.links + (none,) * (LINKS - len(flow.links)) for flow in flows])
        self.all_links = {link for flow in flows for link in flow.links}  # of flows that have ended, too
        self.rate = np.zeros(len(flows))
        self.started = np.full(len(flows), now)
        self.changed = self.next = now
        if shared:
            self.share()

    def add(self, others: Sequence[Many], now: float) -> None:
        """Adds the flows of other groups to this one."""
        self.move(now)
        for other in others:
            other.move(now)
            self.all_links |= other.all_links
        together = [self, *others]
        self.flows, self.left, self.limit, self.links, self.started, self.rate = (
            np.concatenate([getattr(part, name) for part in together]) for name in ("flows", "left", "limit", "links", "started", "rate")
        )
        self.share()

    def move(self, now: float) -> None:
        self.left = np.maximum(0.0, self.left - self.rate * (now - self.changed))
        self.changed = now

    def share(self) -> None:
        self.rate = fair_rates_of_many(self.links, self.limit, self.capacities)
        self.next = float(self.changed + (self.left / self.rate).min())

    def take_ended(self, now: float) -> list[Flow]:
        self.move(now)
        ended = self.left <= self.rate * (TOGETHER * (now - self.started)) + 1e-9
        gone, stay = self.flows[ended].tolist(), ~ended
        for name in ("flows", "left", "limit", "links", "started", "rate"):
            setattr(self, name, getattr(self, name)[stay])
        if len(self.flows) > SMALL:
            self.share()
        return list(gone)

    def dissolve(self) -> list[Flow]:
        """Returns the flows, with the state of the arrays written back into them."""
        for flow, left, rate in zip(self.flows, self.left.tolist(), self.rate.tolist(), strict=True):
            flow.left, flow.rate, flow.changed = left, rate, self.changed
        return list(self.flows)


Group = Few | Many


class Flows:
    """All flows under way on links of given capacities (bytes/s)."""

    def __init__(self, capacities: Sequence[float]) -> None:
        self.capacities = list(capacities)
        self.array = np.append(np.array(capacities, float), np.inf)
        self.group_of: dict[int, Group] = {}  # by link
        self.heap: list[tuple[float, int, Group]] = []
        self.current: dict[Group, float] = {}  # the time of the entry of the heap that counts
        self._number = 0

    def next_end(self) -> float:
        """When the next flow ends; infinite where none is under way."""
        while self.heap and self.current.get(self.heap[0][2]) != self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else float("inf")

    def end(self, now: float) -> list[Flow]:
        """Takes out the flows that end now in one group, and shares its links anew."""
        _, _, group = heapq.heappop(self.heap)
        ended = group.take_ended(now)
        if isinstance(group, Many) and len(group.flows) > SMALL:
            self._schedule(group)
            return ended
        rest = group.dissolve() if isinstance(group, Many) else group.flows
        self._forget(group, ended)
        for part in connected(rest):
            self._few(part, now)
        return ended

    def start(self, now: float, flows: Iterable[Flow]) -> None:
        fresh = list(flows)
        for flow in fresh:
            flow.changed = now
        for part in connected(fresh):
            groups = list(dict.fromkeys(self.group_of[link] for flow in part for link in flow.links if link in self.group_of))
            few = [flow for group in groups if isinstance(group, Few) for flow in group.flows]
            many = [group for group in groups if isinstance(group, Many)]
            for group in groups:
                if group not in many[:1]:
                    self._forget(group, [])
            if not many and len(part) + len(few) <= SMALL:
                self._few(part + few, now)
                continue
            whole = new = Many(part + few, now, self.array, shared=not many)
            if many:
                whole = many[0]
                whole.add([new, *many[1:]], now)
            for link in set[int]().union(new.all_links, *(other.all_links for other in many[1:])):
                self.group_of[link] = whole
            self._schedule(whole)

    def _few(self, flows: list[Flow], now: float) -> None:
        group = Few(flows, now, self.capacities)
        for flow in flows:
            for link in flow.links:
                self.group_of[link] = group
        self._schedule(group)

    def _schedule(self, group: Group) -> None:
        self._number += 1
        self.current[group] = group.next
        heapq.heappush(self.heap, (group.next, self._number, group))

    def _forget(self, group: Group, ended: list[Flow]) -> None:
        """Removes a group: its links belong to no group."""
        self.current.pop(group, None)
        links = group.all_links if isinstance(group, Many) else {link for flow in (*group.flows, *ended) for link in flow.links}
        for link in links:
            if self.group_of.get(link) is group:
                del self.group_of[link]


def connected(flows: Sequence[Flow]) -> list[list[Flow]]:
    """Returns groups of flows: flows of two groups share no link."""
    part_of: dict[int, list[Flow]] = {}
    for flow in flows:
        touched = {id(part_of[link]): part_of[link] for link in flow.links if link in part_of}
        if len(touched) == 1:
            (part,) = touched.values()
            part.append(flow)
            new = flow.links
        else:
            part = [other for several in touched.values() for other in several] + [flow]
            new = tuple(link for other in part for link in other.links)
        for link in new:
            part_of[link] = part
    return list({id(part): part for part in part_of.values()}.values())


def fair_rates(flows: Sequence[Flow], capacities: Sequence[float]) -> None:
    """Sets the rates: all rise together until a link is full or a flow has its limit, and so on with the rest."""
    if len(flows) == 1:
        flows[0].rate = min(flows[0].limit, *(capacities[link] for link in flows[0].links))
        return
    waiting = list(flows)
    room: dict[int, float] = {}
    users: dict[int, int] = {}
    for flow in waiting:
        for link in flow.links:
            room[link] = capacities[link]
            users[link] = users.get(link, 0) + 1
    while waiting:
        level = min((room[link] / count for link, count in users.items() if count), default=float("inf"))
        least = min(flow.limit for flow in waiting)
        if least <= level:
            level = least
            settled = [flow for flow in waiting if flow.limit <= level]
        else:
            full = {link for link, count in users.items() if count and room[link] / count <= level * (1 + 1e-12)}
            settled = [flow for flow in waiting if not full.isdisjoint(flow.links)]
        for flow in settled:
            flow.rate = level
            for link in flow.links:
                room[link] = max(0.0, room[link] - level)
                users[link] -= 1
        done = set(settled)
        waiting = [flow for flow in waiting if flow not in done]


def fair_rates_of_many(links: NDArray[np.int64], limit: NDArray[np.float64], capacities: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rates of flows with their links [n, LINKS] and limits, link after link as `fair_rates` does, up to LEVELS of them."""
    room = capacities.copy()
    rate = np.zeros(len(links))
    waiting = np.arange(len(links))
    none = len(capacities) - 1
    for turn in range(LEVELS + 1):
        if not len(waiting):
            break
        own = links[waiting].T  # a row for the first link of all flows, and so on
        users = np.bincount(own.ravel(), minlength=len(room)).astype(float)
        users[none] = 0
        share = np.divide(room, users, out=np.full(len(room), np.inf), where=users > 0)
        best = limit[waiting]
        for row in own:
            best = np.minimum(best, share[row])
        level = best.min()
        settled = best <= level * (1 + 1e-9) if turn < LEVELS else np.ones(len(waiting), bool)
        rate[waiting[settled]] = best[settled]
        used = np.bincount(own[:, settled].ravel(), np.tile(best[settled], len(own)), minlength=len(room))
        used[none] = 0
        room = np.maximum(room - used, 0.0)
        waiting = waiting[~settled]
    return np.asarray(np.maximum(rate, 1e-6))
