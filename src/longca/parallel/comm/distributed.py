"""TorchComm: torch.distributed with gloo or NCCL, the real thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from longca.parallel.comm.base import Comm, Message, Operation, Traffic, Transfer

TAGS = 1 << 20  # gloo's tags are small numbers; so many messages between two ranks are never under way at once


class TorchComm(Comm):
    """Everything is built from pairs of sends and receives: they may be uneven, gloo and NCCL both have them, and they overlap."""

    def __init__(self, group: Any = None, device: str | torch.device = "cpu", traffic: Traffic | None = None, label: str = "") -> None:
        self.group = group if group is not None else dist.group.WORLD
        members = dist.get_process_group_ranks(self.group)
        super().__init__(members, members.index(dist.get_rank()), torch.device(device), traffic or Traffic())
        self.batches = dist.get_backend(self.group) != "gloo"
        if self.batches and self.size > 1:
            # NCCL connects at the first call, for which it wants all ranks; a ring's first hop may have no work for some of them
            dist.all_reduce(torch.zeros(1, device=self.device), group=self.group)
        self._label = label
        self._subs: dict[tuple[tuple[int, ...], str], TorchComm] = {}
        self._tags: dict[tuple[bool, int], int] = defaultdict(int)

    def sub(self, ranks: Sequence[int], label: str = "") -> TorchComm:
        """Groups are made once and kept: making one is a rendezvous of its members."""
        members = tuple(self.members[rank] for rank in ranks)
        if members == self.members and label == self._label:
            return self
        if (members, label) not in self._subs:
            group = dist.new_group(list(members), use_local_synchronization=True, group_desc=label or "longca")
            self._subs[members, label] = TorchComm(group, self.device, self.traffic, label)
        return self._subs[members, label]

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        sends = [(rank, tensor) for rank, tensor in sends if tensor.numel()]
        receives = [(rank, tensor) for rank, tensor in receives if tensor.numel()]
        if not sends and not receives:
            return Transfer()
        if self.batches:
            works = self._batch(sends, receives)
        else:
            # receives first: a message that finds its receive waiting is not stored on the way
            works = [dist.irecv(tensor, self.members[rank], self.group, self._tag(False, rank)) for rank, tensor in receives]
            works += [dist.isend(tensor, self.members[rank], self.group, self._tag(True, rank)) for rank, tensor in sends]
        held = [*sends, *receives]

        def wait() -> None:
            for work in works:
                work.wait()
            held.clear()

        return Transfer(wait)

    def _batch(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Any]:
        """All at once, as NCCL wants it: one after the other they would wait for each other."""
        operations = [dist.P2POp(dist.isend, tensor, self.members[rank], self.group) for rank, tensor in sends]
        operations += [dist.P2POp(dist.irecv, tensor, self.members[rank], self.group) for rank, tensor in receives]
        return list(dist.batch_isend_irecv(operations))

    def _tag(self, is_send: bool, rank: int) -> int:
        """Both ends number the messages between them, so that gloo pairs them in order."""
        number = self._tags[is_send, rank]
        self._tags[is_send, rank] = (number + 1) % TAGS
        return number
