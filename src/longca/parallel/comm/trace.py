"""TraceComm: one rank's program runs alone, on shapes, and becomes a list of events that a simulator can replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from longca.parallel.comm.base import AttentionCall, Comm, Message, Operation, Traffic, Transfer, Work, size_of

Kind = Literal["post", "wait", "attention", "copy", "merge", "alloc", "free"]


@dataclass(frozen=True)
class Event:
    """`number` ties a wait to its post and a free to its alloc. Peers are numbers in the whole job, with the bytes of each message."""

    kind: Kind
    number: int = -1
    bytes: int = 0
    what: str = ""  # the operation of a post, what a buffer is for
    channel: str = ""  # posts on one channel follow one another; channels are independent
    members: tuple[int, ...] = ()
    sends: tuple[tuple[int, int], ...] = ()
    receives: tuple[tuple[int, int], ...] = ()
    call: AttentionCall | None = None


@dataclass
class Recording:
    """The events of one rank. A buffer is free when nothing refers to its memory any more; that is looked up at every event."""

    events: list[Event] = field(default_factory=list)
    live: dict[int, tuple[StorageWeakRef, int, str]] = field(default_factory=dict)
    numbers: int = 0

    def next_number(self) -> int:
        self.numbers += 1
        return self.numbers

    def add(self, event: Event) -> None:
        for number, (reference, size, what) in list(self.live.items()):
            if reference.expired():
                del self.live[number]
                self.events.append(Event("free", number, size, what))
        self.events.append(event)

    def most_alive(self, what: str) -> int:
        """How many buffers of one kind were alive at the same time."""
        alive = most = 0
        for event in self.events:
            if event.what == what and event.kind in ("alloc", "free"):
                alive += 1 if event.kind == "alloc" else -1
                most = max(most, alive)
        return most

    def peak_bytes(self) -> int:
        alive = most = 0
        for event in self.events:
            if event.kind in ("alloc", "free"):
                alive += event.bytes if event.kind == "alloc" else -event.bytes
                most = max(most, alive)
        return most


class TraceComm(Comm):
    shapes_only = True

    def __init__(self, rank: int, size: int, members: Sequence[int] = (), recording: Recording | None = None, label: str = "") -> None:
        super().__init__(members or range(size), rank, torch.device("meta"), Traffic())
        self.recording = recording or Recording()
        self.channel = f"{label or 'all'}:{','.join(map(str, self.members))}"

    @property
    def events(self) -> list[Event]:
        return self.recording.events

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        number = self.recording.next_number()
        sent, received = (tuple((self.members[rank], size_of(tensor)) for rank, tensor in messages) for messages in (sends, receives))
        size = sum(size for _, size in sent)
        self.recording.add(Event("post", number, size, operation, self.channel, self.members, sent, received))
        held = [*sends, *receives]  # as long as they are under way

        def wait() -> None:
            held.clear()
            self.recording.add(Event("wait", number))

        return Transfer(wait)

    def sub(self, ranks: Sequence[int], label: str = "") -> TraceComm:
        members = [self.members[rank] for rank in ranks]
        found = TraceComm(members.index(self.members[self.rank]), len(members), members, self.recording, label)
        found.traffic = self.traffic
        return found

    def empty(self, shape: Sequence[int], dtype: torch.dtype, what: str = "") -> torch.Tensor:
        buffer = super().empty(shape, dtype)
        number = self.recording.next_number()
        self.recording.add(Event("alloc", number, size_of(buffer), what))
        self.recording.live[number] = (StorageWeakRef(buffer.untyped_storage()), size_of(buffer), what)
        return buffer

    def note_work(self, work: Work, size: int) -> None:
        super().note_work(work, size)
        self.recording.add(Event(work, bytes=size))

    def note_attention(self, call: AttentionCall) -> None:
        self.recording.add(Event("attention", call=call))
