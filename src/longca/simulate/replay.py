"""Replays the events of all ranks on a cluster: discrete events over flows that share links fairly.

The rule of streams:
* Compute of a rank is one stream: attention and operations on memory run one after the other, each not before the host has issued it.
* The host of a rank issues events in order and pays `host_us` for each operation, post and wait. It runs ahead of the stream.
* What a program does `beside` attention (relays) has a stream of its own, whose copies cost time there and none of the first.
* A post starts when all compute that was issued before it on its stream is done, and when the posts that the host issued before it on
  its channel have ended on this rank, whichever stream they are of.
* A message flows when both ends have started its post, one latency later. Messages of one channel between two ranks keep their order.
* A collective that runs as a ring starts when all its members have started it, and ends for all of them together.
* Where ranks share cores (`cores`), compute is a flow over the cores of its node of which one rank takes one at most, and the host waits
  for it.
* A post has ended on a rank when all its messages have been sent and received. A wait holds the stream until then, not the host; where
  the cluster says `wait_holds_host` (gloo), it holds the host too.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from longca.errors import LongcaError
from longca.parallel.comm.trace import Event
from longca.simulate.cluster import Algorithm, Cluster
from longca.simulate.costs import attention_s, memory_s
from longca.simulate.flows import Flow, Flows
from longca.simulate.links import Links

MANY = 64  # ranks; beyond it flows that begin within a small part of the time so far of each other begin together
TOGETHER = 0.001
FEW = 8  # flows of one post that begin exactly when they may


class Span(NamedTuple):
    """Something that a rank did, for timelines: kind is attention, memory, transfer, or waiting."""

    kind: str
    name: str
    start: float
    end: float
    bytes: int = 0


@dataclass
class RankTimes:
    """Where the time of one rank went, in seconds."""

    end: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    exposed: float = 0.0  # the stream waited for bytes under way
    late: float = 0.0  # the stream waited for another rank to start
    host: float = 0.0  # the stream waited for the host
    transfers: float = 0.0  # posts under way, added up
    spans: list[Span] = field(default_factory=list)


class Post:
    """A post of one rank. It is `active` from when it may send; `flowing` is when its last message began to move."""

    __slots__ = ("active", "ended", "event", "flowing", "open", "rank", "ready")

    def __init__(self, rank: int, event: Event, ready: float) -> None:
        self.rank, self.event, self.ready = rank, event, ready
        self.active = self.flowing = ready
        self.ended: float | None = None
        self.open = 0


class Collective:
    """The posts of all members of one collective."""

    __slots__ = ("open", "posts")

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.open = 0


class Computing(NamedTuple):
    """Compute of a rank that shares its cores."""

    rank: int
    start: float
    event: Event


class _Rank:
    __slots__ = ("beside", "channels", "host", "place", "posts", "side_stream", "side_waits_for", "stream", "times", "waits_for")

    def __init__(self) -> None:
        self.place = 0
        self.host = self.stream = self.side_stream = 0.0
        self.beside: deque[tuple[Event, float]] = deque()  # events of the second stream, and when the host had issued them
        self.posts: dict[int, Post] = {}
        self.channels: dict[str, deque[Post]] = {}
        self.waits_for: Post | None = None
        self.side_waits_for: Post | None = None
        self.times = RankTimes()


class Replay:
    """One replay. `watched` are the ranks whose spans are kept."""

    def __init__(self, events: Sequence[Sequence[Event]], cluster: Cluster, watched: Sequence[int] = ()) -> None:
        self.events, self.cluster, self.watched = events, cluster, frozenset(watched)
        self.links = Links(cluster, len(events))
        self.flows = Flows(self.links.capacities)
        self.ranks = [_Rank() for _ in events]
        self.heap: list[tuple[float, int, Post | list[Flow]]] = []
        self.number = 0
        self.waiting: dict[tuple[str, int, int], deque[tuple[Post, int]]] = {}  # by channel, sender, receiver
        self.collectives: dict[tuple[str, tuple[int, ...], str, int], Collective] = {}
        self.counts: dict[tuple[str, tuple[int, ...], str, int], int] = {}
        self.now = 0.0
        self.has_sides = not (cluster.cores or cluster.wait_holds_host)
        self.starting: list[Flow] = []  # flows that begin at `start_at`, together
        self.start_at = 0.0
        self.together = TOGETHER if len(events) > MANY else 0.0
        self.host_s = cluster.compute.host_us * 1e-6
        self.slowness = [cluster.slowness(rank) for rank in range(len(events))]

    def run(self) -> list[RankTimes]:
        for rank in range(len(self.ranks)):
            self._advance(rank)
        while True:
            flow_end = self.flows.next_end()
            event = self.heap[0][0] if self.heap else float("inf")
            if self.starting and self.start_at <= min(event, flow_end):
                flows, self.starting = self.starting, []
                self.now = self.start_at
                self.flows.start(self.start_at, flows)
            elif event <= flow_end and event < float("inf"):
                self._next_event()
            elif flow_end < float("inf"):
                self.now = flow_end
                for flow in self.flows.end(flow_end):
                    self._arrived(flow, flow_end)
            else:
                break
        self._refuse_stuck()
        for replayed in self.ranks:
            replayed.times.end = max(replayed.times.end, replayed.side_stream)
        return [rank.times for rank in self.ranks]

    def _push(self, time: float, what: Post | list[Flow]) -> None:
        self.number += 1
        heapq.heappush(self.heap, (time, self.number, what))

    def _next_event(self) -> None:
        """A post is ready, or flows begin. Flows that begin at one time begin together."""
        now, _, what = heapq.heappop(self.heap)
        self.now = now
        if isinstance(what, Post):
            queue = self.ranks[what.rank].channels[what.event.channel]
            if queue[0] is what:
                self._activate(what, now)
            return
        if len(what) <= FEW:  # of a ring: short, and what follows waits for them
            self.flows.start(now, what)
            return
        if not self.starting:
            self.start_at = now * (1 + self.together)
        self.starting += what

    # -- one rank ----------------------------------------------------------------------------------------------------------------

    def _advance(self, number: int) -> None:
        """Runs a rank's events until it waits for a post that has not ended."""
        rank, events, compute = self.ranks[number], self.events[number], self.cluster.compute
        slow = self.slowness[number]
        while rank.place < len(events):
            event = events[rank.place]
            if event.beside and self.has_sides:
                self._issue_beside(number, event)
            elif event.kind == "wait":
                rank.host += self.host_s
                post = rank.posts[event.number]
                if post.ended is None:
                    rank.waits_for = post
                    return
                self._waited(number, post)
            elif event.kind == "post":
                rank.host += self.host_s
                ready = max(rank.host, rank.stream)
                post = rank.posts[event.number] = Post(number, event, ready)
                rank.channels.setdefault(event.channel, deque()).append(post)
                self._push(ready, post)
            else:
                if event.call is not None:
                    seconds, issued = attention_s(event.call, compute) * slow, self.host_s
                else:
                    seconds, issued = memory_s(event.bytes, event.calls, compute) * slow, self.host_s * event.calls
                if self.cluster.cores:
                    self._compute_on_cores(number, seconds + issued, event)
                    return
                self._compute(number, seconds, issued, event)
            rank.place += 1
        rank.times.end = max(rank.stream, rank.host)

    def _issue_beside(self, number: int, event: Event) -> None:
        """An event of the second stream; the first goes on."""
        rank = self.ranks[number]
        rank.host += self.host_s * (event.calls if event.kind == "memory" else 1)
        if event.kind == "post":
            post = rank.posts[event.number] = Post(number, event, float("inf"))
            rank.channels.setdefault(event.channel, deque()).append(post)
        rank.beside.append((event, rank.host))
        if rank.side_waits_for is None:
            self._advance_beside(number)

    def _advance_beside(self, number: int) -> None:
        """Runs the events of a rank's second stream until it waits for a post that has not ended."""
        rank = self.ranks[number]
        while rank.beside:
            event, issued = rank.beside[0]
            rank.side_stream = max(rank.side_stream, issued, self.now)
            if event.kind == "wait":
                post = rank.posts[event.number]
                if post.ended is None:
                    rank.side_waits_for = post
                    return
            elif event.kind == "post":
                post = rank.posts[event.number]
                post.ready = post.active = post.flowing = rank.side_stream
                self._push(post.ready, post)
            else:
                rank.side_stream += memory_s(event.bytes, event.calls, self.cluster.compute) * self.slowness[number]
            rank.beside.popleft()

    def _compute(self, number: int, seconds: float, issued: float, event: Event) -> None:
        """Several operations in a row take what the slower of host and stream takes."""
        rank = self.ranks[number]
        first = rank.host + issued / max(1, event.calls)
        rank.host += issued
        start = max(rank.stream, first)
        rank.times.host += start - rank.stream
        end = max(start + seconds, rank.host)
        rank.times.host += end - start - seconds
        self._spent(number, event, seconds, start, end)
        rank.stream = end

    def _spent(self, number: int, event: Event, seconds: float, start: float, end: float) -> None:
        """Counts compute of a rank."""
        times, call = self.ranks[number].times, event.call
        if call is None:
            times.memory += seconds
        else:
            times.attention += seconds
        if number in self.watched:
            label = "memory" if call is None else f"attention {'backward' if call.backward else 'forward'} {call.rows}x{call.keys}"
            times.spans.append(Span("memory" if call is None else "attention", label, start, end, event.bytes))

    def _compute_on_cores(self, number: int, seconds: float, event: Event) -> None:
        """Ranks that share cores compute at the speed that they get; host and stream are one."""
        rank = self.ranks[number]
        rank.host = rank.stream = start = max(rank.host, rank.stream)
        self._push(start, [Flow(Computing(number, start, event), max(seconds, 1e-9), [self.links.cores(number)], 1.0)])

    def _computed(self, done: Computing, now: float) -> None:
        rank = self.ranks[done.rank]
        rank.host = rank.stream = now
        self._spent(done.rank, done.event, now - done.start, done.start, now)
        rank.place += 1
        self._advance(done.rank)

    def _waited(self, number: int, post: Post) -> None:
        """The stream goes on when the post has ended; what it waited for is counted."""
        rank = self.ranks[number]
        assert post.ended is not None
        if post.ended > rank.stream:
            late = min(max(0.0, post.flowing - rank.stream), post.ended - rank.stream)
            rank.times.late += late
            rank.times.exposed += post.ended - rank.stream - late
            if number in self.watched:
                rank.times.spans.append(Span("waiting", f"waiting for {post.event.what}", rank.stream, post.ended))
            rank.stream = post.ended
        if self.cluster.wait_holds_host:
            rank.host = max(rank.host, post.ended)

    # -- transfers ---------------------------------------------------------------------------------------------------------------

    def _activate(self, post: Post, now: float) -> None:
        post.active = now
        event = post.event
        if self.cluster.operations.of(event.what) is Algorithm.RING and len(event.members) > 1 and event.what != "exchange":
            self._join(post, now)
            return
        outgoing, incoming = _by_peer(event.sends), _by_peer(event.receives)
        post.open = len(outgoing) + len(incoming)
        started: list[tuple[float, Flow]] = []
        for peer, size in outgoing.items():
            self._meet((event.channel, post.rank, peer), post, size, now, started)
        for peer, size in incoming.items():
            self._meet((event.channel, peer, post.rank), post, size, now, started)
        self._start(started)
        if not post.open:
            self._ended(post, now)

    def _meet(self, key: tuple[str, int, int], post: Post, size: int, now: float, started: list[tuple[float, Flow]]) -> None:
        """A message flows when its sender and its receiver have both come."""
        queue = self.waiting.setdefault(key, deque())
        if not queue or queue[0][0].rank == post.rank:
            queue.append((post, size))
            return
        other, _ = queue.popleft()
        if not queue:
            del self.waiting[key]
        _, sender, receiver = key
        path = self.links.path(sender, receiver, post.event.what)
        post.flowing = other.flowing = now
        started.append((now + path.latency_s, Flow((post, other), size, path.links, path.limit)))

    def _join(self, post: Post, now: float) -> None:
        """The members of a ring collective come one after the other; the last one starts it."""
        event = post.event
        count_key = (event.channel, event.members, event.what, post.rank)
        turn = self.counts[count_key] = self.counts.get(count_key, -1) + 1
        key = (event.channel, event.members, event.what, turn)
        collective = self.collectives.setdefault(key, Collective())
        collective.posts.append(post)
        if len(collective.posts) < len(event.members):
            return
        del self.collectives[key]
        sizes = {member.rank: max(_by_peer(member.event.sends).values(), default=0) for member in collective.posts}
        if event.what == "reduce_scatter":  # what a rank gets, of each of the others
            sizes = {member.rank: max(_by_peer(member.event.receives).values(), default=0) for member in collective.posts}
        total = sum(sizes.values())
        started = []
        for sender, receiver in zip(event.members, (*event.members[1:], event.members[0]), strict=True):
            paths = self.links.ring_paths(sender, receiver, event.what)
            size = max(1, total - sizes[receiver]) / len(paths)
            started += [(now + path.latency_s, Flow(collective, size, path.links, path.limit)) for path in paths]
        for member in collective.posts:
            member.flowing = now
        collective.open = len(started)
        self._start(started)

    def _start(self, started: list[tuple[float, Flow]]) -> None:
        by_time: dict[float, list[Flow]] = {}
        for time, flow in started:
            by_time.setdefault(time, []).append(flow)
        for time, flows in by_time.items():
            self._push(time, flows)

    def _arrived(self, flow: Flow, now: float) -> None:
        if isinstance(flow.owner, Computing):
            self._computed(flow.owner, now)
            return
        if isinstance(flow.owner, Collective):
            flow.owner.open -= 1
            if not flow.owner.open:
                for post in flow.owner.posts:
                    self._ended(post, now)
            return
        for post in flow.owner:  # type: ignore[attr-defined]
            post.open -= 1
            if not post.open:
                self._ended(post, now)

    def _ended(self, post: Post, now: float) -> None:
        """The next post of the channel may start, and the rank goes on where it waited for this one."""
        post.ended = now
        rank = self.ranks[post.rank]
        rank.times.transfers += now - post.flowing
        if post.rank in self.watched:
            rank.times.spans.append(Span("transfer", post.event.what, post.flowing, now, post.event.bytes))
        queue = rank.channels[post.event.channel]
        queue.popleft()
        if queue and queue[0].ready <= now:
            self._activate(queue[0], now)
        if rank.side_waits_for is post:
            rank.side_waits_for = None
            self._advance_beside(post.rank)
        if rank.waits_for is post:
            rank.waits_for = None
            self._waited(post.rank, post)
            rank.place += 1
            self._advance(post.rank)

    def _refuse_stuck(self) -> None:
        stuck = [number for number, rank in enumerate(self.ranks) if rank.waits_for is not None]
        if stuck:
            post = self.ranks[stuck[0]].waits_for
            assert post is not None
            raise LongcaError(
                f"the programs do not fit together: rank {stuck[0]} waits for {post.event.what} on channel {post.event.channel[:40]} "
                f"that never ends ({len(stuck)} ranks wait)."
            )


def _by_peer(messages: Sequence[tuple[int, int]]) -> dict[int, int]:
    sizes: dict[int, int] = {}
    for peer, size in messages:
        sizes[peer] = sizes.get(peer, 0) + size
    return sizes


def replay(events: Sequence[Sequence[Event]], cluster: Cluster, watched: Sequence[int] = ()) -> list[RankTimes]:
    """Where the time of each rank went."""
    return Replay(events, cluster, watched).run()
