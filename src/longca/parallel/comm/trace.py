"""TraceComm: one rank's program runs alone, on shapes, and becomes a list of events that a simulator can replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import msgspec
import torch

from longca.parallel.comm.base import AttentionCall, Channel, Comm, Message, Operation, T, Traffic, Transfer, by_rank, size_of
from longca.parallel.comm.shapes import META, Shape

Kind = Literal["post", "wait", "attention", "memory"]
Messages = tuple[tuple[int, int], ...]  # ranks of the whole job, and bytes


class Event(msgspec.Struct, frozen=True, gc=False):
    """One step of a rank's program. `number` ties a wait to its post. Peers are numbers in the whole job."""

    kind: Kind
    number: int = -1
    bytes: int = 0  # sent by a post; read and written by operations on memory
    calls: int = 1  # operations on memory that follow one another are one event
    what: str = ""  # the operation of a post
    channel: str = ""  # posts on one channel follow one another; channels are independent
    members: tuple[int, ...] = ()
    sends: Messages = ()
    receives: Messages = ()
    call: AttentionCall | None = None
    alive: int = 0  # bytes of all storages at this time
    beside: bool = False  # on a stream of its own, beside attention: `Comm.beside`


@dataclass
class Recording:
    """The events of one rank, and the storages of its tensors as far as they were made while it was recorded."""

    events: list[Event] = field(default_factory=list)
    numbers: int = 0
    alive: int = 0
    peak: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    most: dict[str, int] = field(default_factory=dict)
    waiting_bytes: int = 0
    waiting_calls: int = 0
    beside: bool = False

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def add(self, event: Event) -> None:
        self.flush()
        self.events.append(event)

    def flush(self) -> None:
        """Operations on memory become an event when something else follows them."""
        if self.waiting_calls:
            memory = Event("memory", bytes=self.waiting_bytes, calls=self.waiting_calls, alive=self.alive, beside=self.beside)
            self.events.append(memory)
            self.waiting_bytes = self.waiting_calls = 0

    def allocated(self, size: int, what: str) -> None:
        self.alive += size
        self.peak = max(self.peak, self.alive)
        self.counts[what] += 1
        self.most[what] = max(self.most.get(what, 0), self.counts[what])

    def freed(self, size: int, what: str) -> None:
        self.alive -= size
        self.counts[what] -= 1

    def worked(self, size: int) -> None:
        self.waiting_bytes += size
        self.waiting_calls += 1

    def most_alive(self, what: str) -> int:
        """How many buffers of one kind were alive at the same time."""
        return self.most.get(what, 0)

    def peak_bytes(self) -> int:
        """The most bytes that were alive at the same time: inputs made with `TraceComm.empty`, buffers, results, copies, workspaces."""
        return self.peak


class TraceComm(Comm):
    """`own_collectives`: collectives are recorded as NCCL does them, without buffers for the parts of a sum that it adds."""

    shapes_only = True

    def __init__(
        self,
        rank: int,
        size: int,
        members: Sequence[int] = (),
        recording: Recording | None = None,
        channel: str = "keys",
        own_collectives: bool = False,
    ) -> None:
        super().__init__(members or range(size), rank, META, Traffic())
        self.own_collectives = own_collectives
        self.recording = recording or Recording()
        self.channel = channel

    @property
    def events(self) -> list[Event]:
        self.recording.flush()
        return self.recording.events

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        recording = self.recording
        number = recording.next_number()
        sent, received = (tuple((self.members[rank], size_of(tensor)) for rank, tensor in messages) for messages in (sends, receives))
        size = sum(size for _, size in sent)
        recording.add(
            Event(
                "post", number, size, len(sent), operation, self.channel, self.members, sent, received,
                alive=recording.alive, beside=recording.beside,
            )
        )  # fmt: skip
        held = [*sends, *receives]  # as long as they are under way

        def wait() -> None:
            held.clear()
            recording.add(Event("wait", number, alive=recording.alive, beside=recording.beside))

        return Transfer(wait)

    def reduce_scatter(self, parts: Sequence[Sequence[torch.Tensor]], totals: Sequence[torch.Tensor]) -> Transfer:
        if not self.adds_on_the_way(parts, totals):
            return super().reduce_scatter(parts, totals)
        sends = [(rank, part) for rank, part in by_rank(parts) if rank != self.rank]
        return self.exchange(sends, [(rank, total) for rank, _ in sends[:: len(totals)] for total in totals], "reduce_scatter")

    def sub(self, ranks: Sequence[int], channel: Channel = "keys") -> TraceComm:
        return self._some(ranks, channel, self.own_collectives and len(ranks) == self.size)

    def subgroup(self, ranks: Sequence[int]) -> TraceComm:
        return self._some(ranks, "subgroup", self.own_collectives)

    def _some(self, ranks: Sequence[int], channel: str, own_collectives: bool) -> TraceComm:
        members = tuple(self.members[rank] for rank in ranks)
        rank = members.index(self.members[self.rank])
        group = TraceComm(rank, len(members), members, self.recording, channel, own_collectives)
        group.traffic = self.traffic
        return group

    def empty(self, shape: Sequence[int], dtype: torch.dtype, what: str = "") -> torch.Tensor:
        return cast(torch.Tensor, Shape.empty(self.recording, shape, dtype, what))

    def beside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Records the task at once, as a device with streams would get it."""
        recording = self.recording
        recording.flush()
        recording.beside = True
        result = [task()]
        recording.flush()
        recording.beside = False
        return result.pop

    def note_attention(self, call: AttentionCall) -> None:
        self.recording.add(Event("attention", call=call, alive=self.recording.alive))
