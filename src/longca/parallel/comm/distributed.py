"""TorchComm: transfers by torch.distributed, with gloo or NCCL."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from longca.parallel.comm.base import Channel, Comm, Message, Operation, T, Traffic, Transfer, are_even, by_rank, size_of
from longca.parallel.comm.links import Link, Links

PACKED_BYTES = 512 << 10  # up to here gloo's time for a message hardly depends on its size


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _use_on_another(stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor]) -> None:
    """Tells the allocator that tensors of one stream are used on the current one, so that their memory is not given away too early."""
    now = torch.cuda.current_stream(stream.device)
    if now != stream:
        for tensor in tensors:
            tensor.record_stream(now)


class TorchComm(Comm):
    """Nearly everything is built from pairs of sends and receives: they may be uneven, gloo and NCCL both have them, and they overlap.

    Even all-gathers, and even reduce-scatters of fp32, are the backend's own collectives, which know the nodes: on 64 GPUs pairs would
    send 56 times between nodes what a ring sends 8 times. gloo's own are slower than pairs, so it keeps these. A reduce-scatter of bf16
    would be rounded at every hop, so its parts travel in pairs; a program that crosses nodes gives them in fp32 where the backend has its
    own collectives (`primitives/gather.py`).

    The ranks of the process group make it together; it has communicators of its own (`links.py`), until it is closed.
    """

    def __init__(self, group: Any = None, device: str | torch.device = "cpu", own_collectives: bool | None = None) -> None:
        """`own_collectives`: whether the backend's are used; None: unless it is gloo."""
        self.group = group if group is not None else dist.group.WORLD
        self._links = Links(self.group, torch.device(device))
        super().__init__(self._links.members, self._links.rank, self._links.device, Traffic())
        self.batches = self._links.nccl
        self.own_collectives = self.batches if own_collectives is None else own_collectives
        self._link = self._links.channels["keys"]

    def sub(self, ranks: Sequence[int], channel: Channel = "keys") -> TorchComm:
        link = self._links.channels[channel]
        return self._view(ranks, link, self.own_collectives and len(ranks) == len(link.members))

    def subgroup(self, ranks: Sequence[int]) -> TorchComm:
        """Returns a Comm with a communicator of its own, which is made once and kept."""
        return self._view(ranks, self._links.of_some([self.members[rank] for rank in ranks]), self.own_collectives)

    def _view(self, ranks: Sequence[int], link: Link, own_collectives: bool) -> TorchComm:
        view = copy.copy(self)
        view.members = tuple(self.members[rank] for rank in ranks)
        view.rank, view.size = view.members.index(self.members[self.rank]), len(view.members)
        view._link, view.own_collectives = link, own_collectives
        return view

    @property
    def opening_s(self) -> float:  # type: ignore[override]
        return self._links.opening_s

    def on_host(self) -> TorchComm:
        """Returns a Comm of the same ranks for tensors of the host, so that a message waits for no GPU."""
        return TorchComm(self.group) if self.batches else self

    def close(self, at_once: bool = False) -> None:
        """Ends the communicators. All ranks do so, once no transfer is under way; or one does so at once, and who waits for it fails."""
        self._links.close(at_once)

    def reopen(self) -> None:
        """Ends the communicators at once and makes new ones. All ranks do so, after one has failed."""
        self._links.close(at_once=True)
        self._links = Links(self.group, self.device)
        self._link = self._links.channels["keys"]

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        sends = [(rank, tensor) for rank, tensor in sends if tensor.numel()]
        receives = [(rank, tensor) for rank, tensor in receives if tensor.numel()]
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        works: list[Any]
        if self.batches:
            held, unpack = [*sends, *receives], list[tuple[torch.Tensor, list[torch.Tensor]]]()
            works = [self._link.batch(self._members(sends), self._members(receives))] if held else []
        else:
            outgoing, _ = _packed(sends, pack=True)
            incoming, unpack = _packed(receives, pack=False)
            held = [*outgoing, *incoming]
            works = self._link.one_by_one(self._members(outgoing), self._members(incoming))

        def wait() -> None:
            for work in works:
                work.wait()
            if stream is not None:
                _use_on_another(stream, [tensor for _, tensor in held])
            for message, tensors in unpack:
                for tensor, part in zip(tensors, message.split([tensor.numel() for tensor in tensors]), strict=True):
                    tensor.view(-1).copy_(part)
            held.clear()
            unpack.clear()

        return Transfer(wait) if works else Transfer()

    def beside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Runs the task at once on a second stream of a GPU. gloo waits on the host, so there it runs when its result is asked for."""
        if self.device.type != "cuda":
            return task
        with torch.cuda.stream(_second_stream(self.device)):
            return [task()].pop

    def join(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).wait_stream(_second_stream(self.device))

    def _after_copies(self, transfer: Transfer, copied: Sequence[torch.Tensor]) -> Transfer:
        """Returns the transfer with a wait for copies of this stream, because another stream may wait for the transfer."""
        if self.device.type != "cuda":
            return transfer
        stream = torch.cuda.current_stream(self.device)
        done = stream.record_event()

        def finish() -> None:
            torch.cuda.current_stream(self.device).wait_event(done)
            _use_on_another(stream, copied)

        return transfer.then(finish)

    def all_gather(self, tensors: Sequence[torch.Tensor], receives: Sequence[Sequence[torch.Tensor]]) -> Transfer:
        if not self.own_collectives or not are_even(receives):
            return super().all_gather(tensors, receives)
        self._count([(rank, tensor) for rank in range(self.size) if rank != self.rank for tensor in tensors])
        wholes = [_Whole(buffers) for buffers in zip(*receives, strict=True)]
        own = [tensor.contiguous() for tensor in tensors]
        works = [self._link.all_gather(whole.memory, tensor.view(-1)) for whole, tensor in zip(wholes, own, strict=True)]

        def finish() -> None:
            _wait(works)
            for whole in wholes:
                whole.unpack()
            own.clear()

        return Transfer(finish)

    def reduce_scatter(self, parts: Sequence[Sequence[torch.Tensor]], totals: Sequence[torch.Tensor]) -> Transfer:
        if not self.adds_on_the_way(parts, totals):
            return super().reduce_scatter(parts, totals)
        self._count([(rank, part) for rank, part in by_rank(parts) if rank != self.rank])
        wholes = [_Whole(of_all, filled=True).memory for of_all in zip(*parts, strict=True)]
        works = [self._link.reduce_scatter(total.view(-1), whole) for total, whole in zip(totals, wholes, strict=True)]

        def finish() -> None:
            _wait(works)
            wholes.clear()

        return Transfer(finish)

    def _members(self, messages: Sequence[Message]) -> list[Message]:
        """Returns messages with the numbers that ranks have in the whole job."""
        return [(self.members[rank], tensor) for rank, tensor in messages]


def _wait(works: list[Any]) -> None:
    for work in works:
        work.wait()
    works.clear()


class _Whole:
    """The tensors of all ranks as one contiguous tensor `memory`: a view if they are adjacent in memory, else a buffer."""

    def __init__(self, tensors: Sequence[torch.Tensor], filled: bool = False) -> None:
        first, size = tensors[0], tensors[0].numel()
        apart = [rank for rank, tensor in enumerate(tensors) if tensor.data_ptr() != first.data_ptr() + rank * size_of(first)]
        self.tensors = tensors if apart or len({tensor.untyped_storage().data_ptr() for tensor in tensors}) > 1 else ()
        if not self.tensors:
            self.memory = first.as_strided((len(tensors) * size,), (1,))
        elif filled:
            self.memory = torch.cat([tensor.reshape(-1) for tensor in tensors])
        else:
            self.memory = first.new_empty(len(tensors) * size)

    def unpack(self) -> None:
        for tensor, part in zip(self.tensors, self.memory.split(self.tensors[0].numel()) if self.tensors else (), strict=True):
            tensor.view(-1).copy_(part)


def _packed(messages: Sequence[Message], pack: bool) -> tuple[list[Message], list[tuple[torch.Tensor, list[torch.Tensor]]]]:
    """Joins small messages to the same rank. Returns the messages, and each joined one with its tensors. Both ends know all sizes, so they
    join alike."""
    by_rank: dict[int, list[torch.Tensor]] = {}
    for rank, tensor in messages:
        by_rank.setdefault(rank, []).append(tensor)
    packed, contents = list[Message](), list[tuple[torch.Tensor, list[torch.Tensor]]]()
    for rank, tensors in by_rank.items():
        together = len(tensors) > 1 and len({tensor.dtype for tensor in tensors}) == 1 and sum(map(size_of, tensors)) <= PACKED_BYTES
        if not together:
            packed += [(rank, tensor) for tensor in tensors]
            continue
        flat = [tensor.view(-1) for tensor in tensors]
        message = torch.cat(flat) if pack else flat[0].new_empty(sum(map(len, flat)))
        packed.append((rank, message))
        contents.append((message, tensors))
    return packed, contents
