"""LocalComm: all ranks are threads of one process on one device. For tests and for several ranks on one GPU, never for speed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from longca.errors import LongcaError
from longca.parallel.comm.base import Channel, Comm, Message, Operation, Traffic, Transfer

T = TypeVar("T")


class Stuck(LongcaError):
    """All ranks wait for each other, or one rank failed and others wait for it."""


@dataclass
class Half:
    """One end of a message: who posted it, its memory, and when that memory is ready."""

    description: str
    tensor: torch.Tensor
    ready: torch.cuda.Event | None
    matched: bool = False
    done: bool = False
    copied: torch.cuda.Event | None = None


@dataclass
class Line:
    """The messages from one rank to another that wait for their other half: all sends, or all receives."""

    sends: deque[Half] = field(default_factory=deque)
    receives: deque[Half] = field(default_factory=deque)


class World:
    """The ranks of one process. The rank that posts the second half of a message copies it, so there is no thread for copies."""

    def __init__(self, size: int, device: str | torch.device = "cpu") -> None:
        self.size, self.device = size, torch.device(device)
        self.changed = threading.Condition()
        self.lines: dict[tuple[Channel, int, int], Line] = {}
        self.waiting: dict[int, list[Half]] = {}
        self.finished: set[int] = set()
        self.failure: BaseException | None = None
        on_gpu = self.device.type == "cuda"
        self.streams = [torch.cuda.Stream(self.device) if on_gpu else None for _ in range(size)]
        self.copy_streams = [torch.cuda.Stream(self.device) if on_gpu else None for _ in range(size)]

    def comms(self) -> list[LocalComm]:
        return [LocalComm(self, range(self.size), rank) for rank in range(self.size)]

    def run(self, program: Callable[[int], T]) -> list[T]:
        """Run program(rank) for all ranks at once; the first failure of any rank is raised."""
        results: list[Any] = [None] * self.size
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

        def body(rank: int) -> None:
            torch.set_num_threads(1)
            try:
                with torch.cuda.stream(self.streams[rank]), torch.autograd.set_multithreading_enabled(False):
                    results[rank] = program(rank)
            except BaseException as error:
                self.fail(error)
            self.finish(rank)

        threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}") for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.finished.clear()
        if self.failure is not None:
            raise self.failure
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return results

    def fail(self, error: BaseException) -> None:
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()

    def finish(self, rank: int) -> None:
        with self.changed:
            self.finished.add(rank)
            self._look_for_deadlock()

    def post(self, key: tuple[Channel, int, int], half: Half, sends: bool) -> None:
        with self.changed:
            line = self.lines.setdefault(key, Line())
            own, others = (line.sends, line.receives) if sends else (line.receives, line.sends)
            if not others:
                own.append(half)
                return
            other = others.popleft()
            half.matched = other.matched = True
        source, target = (half, other) if sends else (other, half)
        self._copy(source, target, self.copy_streams[key[2]])
        with self.changed:
            half.done = other.done = True
            self.changed.notify_all()

    def _copy(self, source: Half, target: Half, stream: torch.cuda.Stream | None) -> None:
        if (source.tensor.numel(), source.tensor.dtype) != (target.tensor.numel(), target.tensor.dtype):
            shapes = [f"{list(half.tensor.shape)} {half.tensor.dtype}" for half in (source, target)]
            raise Stuck(f"{source.description} has {shapes[0]}, but {target.description} expects {shapes[1]}; the plans differ.")
        with torch.cuda.stream(stream) if stream is not None else nullcontext():
            for half in (source, target):
                if half.ready is not None and stream is not None:
                    stream.wait_event(half.ready)
                    half.tensor.record_stream(stream)
            target.tensor.view(-1).copy_(source.tensor.view(-1))
            if stream is not None:
                source.copied = target.copied = stream.record_event()

    def wait(self, rank: int, halves: list[Half]) -> None:
        with self.changed:
            self.waiting[rank] = halves
            self._look_for_deadlock()
            while self.failure is None and not all(half.done for half in halves):
                self.changed.wait()
            del self.waiting[rank]
            if self.failure is not None:
                raise Stuck(f"rank {rank} stopped because another rank failed: {self.failure}")
        for half in halves:
            if half.copied is not None:
                torch.cuda.current_stream(self.device).wait_event(half.copied)

    def _look_for_deadlock(self) -> None:
        stuck = [[half for half in halves if not half.done] for halves in self.waiting.values()]
        hopeless = all(halves and not any(half.matched for half in halves) for halves in stuck)
        if self.failure is None and stuck and hopeless and len(self.waiting) + len(self.finished) == self.size:
            waits = "; ".join(halves[0].description for halves in stuck)
            self.failure = Stuck(f"all ranks wait and none can go on: {waits}.")
            self.changed.notify_all()


class LocalComm(Comm):
    def __init__(self, world: World, members: Sequence[int], rank: int, channel: Channel = "keys", traffic: Traffic | None = None) -> None:
        super().__init__(members, rank, world.device, traffic or Traffic())
        self.world, self.channel = world, channel

    def sub(self, ranks: Sequence[int], channel: Channel = "keys") -> LocalComm:
        members = [self.members[rank] for rank in ranks]
        return LocalComm(self.world, members, members.index(self.members[self.rank]), channel, self.traffic)

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        me = self.members[self.rank]
        on_gpu = self.device.type == "cuda"
        now = torch.cuda.current_stream(self.device).record_event() if on_gpu else None
        halves = []
        for messages, is_send in ((sends, True), (receives, False)):
            for rank, tensor in messages:
                other = self.members[rank]
                text = f"rank {me} {'sends to' if is_send else 'receives from'} rank {other} ({operation})"
                halves.append(Half(text, tensor, now))
                self.world.post((self.channel, *((me, other) if is_send else (other, me))), halves[-1], is_send)
        return Transfer(lambda: self.world.wait(me, halves))
