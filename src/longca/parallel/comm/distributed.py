"""TorchComm: transfers by torch.distributed, with gloo or NCCL."""

from __future__ import annotations

import atexit
import gc
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from longca.parallel.comm.base import Comm, Message, Operation, T, Traffic, Transfer, are_even, by_rank, size_of

TAGS = 1 << 20  # gloo's tags are small numbers; so many messages between two ranks are never under way at once
PACKED_BYTES = 512 << 10  # up to here gloo's time for a message hardly depends on its size
# torch 2.13 gives them new names
_ALL_GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@cache
def _second_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def _use_on_another(stream: torch.cuda.Stream, tensors: Sequence[torch.Tensor]) -> None:
    """Tells the allocator that tensors of one stream are used on the current one, so that their memory is not given away too early."""
    now = torch.cuda.current_stream(stream.device)
    if now != stream:
        for tensor in tensors:
            tensor.record_stream(now)


_comms: dict[tuple[Any, torch.device], TorchComm] = {}


def comm_of(group: Any, device: torch.device) -> TorchComm:
    """Returns the Comm of a process group, made once. What it made by `sub` ends with the process group: torch would give the name of a
    destroyed group to the next one of the same ranks, which then reads addresses of the old one."""
    for other, where in [key for key in _comms if key[0] not in dist.distributed_c10d._world.pg_map]:
        del _comms[other, where]
    if (group, device) not in _comms:
        _comms[group, device] = TorchComm(group, device)
    return _comms[group, device]


@atexit.register
def _let_go() -> None:
    """gloo's threads must end before the interpreter does, so nothing here may hold a group by then: not even what refers to itself."""
    _comms.clear()
    gc.collect()


class TorchComm(Comm):
    """Nearly everything is built from pairs of sends and receives: they may be uneven, gloo and NCCL both have them, and they overlap.

    Even all-gathers, and even reduce-scatters of fp32, are the backend's own collectives, which know the nodes: on 64 GPUs pairs would
    send 56 times between nodes what a ring sends 8 times. gloo's own are slower than pairs, so it keeps these. A reduce-scatter of bf16
    would be rounded at every hop, so its parts travel in pairs; a program that crosses nodes gives them in fp32 where the backend has its
    own collectives (`primitives/gather.py`).
    """

    def __init__(
        self,
        group: Any = None,
        device: str | torch.device = "cpu",
        traffic: Traffic | None = None,
        label: str = "",
        own_collectives: bool | None = None,
    ) -> None:
        """`own_collectives`: whether the backend's are used; None: unless it is gloo."""
        self.group = group if group is not None else dist.group.WORLD
        members = dist.get_process_group_ranks(self.group)
        super().__init__(members, members.index(dist.get_rank()), torch.device(device), traffic or Traffic())
        self.batches = dist.get_backend(self.group) != "gloo"
        self.own_collectives = self.batches if own_collectives is None else own_collectives
        if self.batches and self.size > 1:
            # NCCL connects at the first call, for which it wants all ranks; a ring's first hop may have no work for some of them
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.group)
        self._label = label
        self._subs: dict[tuple[tuple[int, ...], str], TorchComm] = {}
        self._tags: dict[tuple[bool, int], int] = defaultdict(int)

    def sub(self, ranks: Sequence[int], label: str = "") -> TorchComm:
        """Returns a group, which is made once and kept, because making one is a rendezvous of its members."""
        members = tuple(self.members[rank] for rank in ranks)
        if members == self.members and label == self._label:
            return self
        if (members, label) not in self._subs:
            group = self._new_group(ranks, label)
            self._subs[members, label] = TorchComm(group, self.device, self.traffic, label, self.own_collectives)
        return self._subs[members, label]

    def on_host(self) -> TorchComm:
        """Returns a Comm of the same ranks for tensors of the host, so that a message waits for no GPU."""
        if not self.batches:
            return self
        key = self.members, "host"
        if key not in self._subs:
            self._subs[key] = TorchComm(self._new_group(range(self.size), "host", "gloo"), "cpu", self.traffic)
        return self._subs[key]

    def _new_group(self, ranks: Sequence[int], label: str, backend: str | None = None) -> Any:
        """Returns a new group of some members, which alone take part.

        Where init_process_group got a `device_id`, torch would split the new group off the default one, and wait for all ranks of the job:
        those of other groups make none now. So the default group has no device meanwhile, and NCCL connects the members by themselves.
        """
        self._count_alike([rank for rank in ranks if rank != self.rank])
        default = dist.distributed_c10d._get_default_group()
        device, default.bound_device_id = default.bound_device_id, None
        try:
            members = [self.members[rank] for rank in ranks]
            return dist.new_group(members, backend=backend, use_local_synchronization=True, group_desc=label or "longca")
        finally:
            default.bound_device_id = device

    def _count_alike(self, others: Sequence[int]) -> None:
        """Makes groups of this rank alone until it has as many as each of the others. Torch names a group by its ranks and by how many
        groups the process has: members that have made different numbers of groups would wait for each other under different names."""
        mine = torch.tensor([len(dist.distributed_c10d._world.pg_names)], device=self.device)
        theirs = [torch.empty_like(mine) for _ in others]
        self._post("exchange", [(rank, mine) for rank in others], list(zip(others, theirs, strict=True))).wait()
        for _ in range(max(map(int, theirs), default=0) - int(mine)):
            dist.new_group([dist.get_rank()], use_local_synchronization=True)

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        sends = [(rank, tensor) for rank, tensor in sends if tensor.numel()]
        receives = [(rank, tensor) for rank, tensor in receives if tensor.numel()]
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        works: list[Any]
        if self.batches:
            held = [*sends, *receives]
            works, unpack = self._batch(sends, receives) if held else [], list[tuple[torch.Tensor, list[torch.Tensor]]]()
        else:
            outgoing, _ = _packed(sends, pack=True)
            incoming, unpack = _packed(receives, pack=False)
            held = [*outgoing, *incoming]
            # receives first: a message that finds its receive waiting is not stored on the way
            works = [dist.irecv(tensor, self.members[rank], self.group, self._tag(False, rank)) for rank, tensor in incoming]
            works += [dist.isend(tensor, self.members[rank], self.group, self._tag(True, rank)) for rank, tensor in outgoing]

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
        works = [
            _ALL_GATHER(whole.memory, tensor.view(-1), group=self.group, async_op=True) for whole, tensor in zip(wholes, own, strict=True)
        ]

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
        works = [
            _REDUCE_SCATTER(total.view(-1), whole, group=self.group, async_op=True) for total, whole in zip(totals, wholes, strict=True)
        ]

        def finish() -> None:
            _wait(works)
            wholes.clear()

        return Transfer(finish)

    def _batch(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Any]:
        """Starts all messages in one batch. Started one after the other, NCCL's would wait for each other."""
        operations = [dist.P2POp(dist.isend, tensor, self.members[rank], self.group) for rank, tensor in sends]
        operations += [dist.P2POp(dist.irecv, tensor, self.members[rank], self.group) for rank, tensor in receives]
        return list(dist.batch_isend_irecv(operations))

    def _tag(self, is_send: bool, rank: int) -> int:
        """Returns the number of the next message to or from a rank. Both ends count alike, so gloo pairs messages in order."""
        number = self._tags[is_send, rank]
        self._tags[is_send, rank] = (number + 1) % TAGS
        return number


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
