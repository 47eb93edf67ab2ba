"""TorchComm: torch.distributed with gloo or NCCL, the real thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from longca.parallel.comm.base import Comm, Message, Operation, Traffic, Transfer, size_of

TAGS = 1 << 20  # gloo's tags are small numbers; so many messages between two ranks are never under way at once
LETTER_BYTES = 512 << 10  # up to here gloo's time for a message hardly depends on its size


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
            self._count_alike([rank for rank in ranks if rank != self.rank])
            group = dist.new_group(list(members), use_local_synchronization=True, group_desc=label or "longca")
            self._subs[members, label] = TorchComm(group, self.device, self.traffic, label)
        return self._subs[members, label]

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
        works: list[Any]
        if self.batches:
            held = [*sends, *receives]
            works, unpack = self._batch(sends, receives) if held else [], list[tuple[torch.Tensor, list[torch.Tensor]]]()
        else:
            outgoing, _ = _letters(sends, pack=True)
            incoming, unpack = _letters(receives, pack=False)
            held = [*outgoing, *incoming]
            # receives first: a message that finds its receive waiting is not stored on the way
            works = [dist.irecv(tensor, self.members[rank], self.group, self._tag(False, rank)) for rank, tensor in incoming]
            works += [dist.isend(tensor, self.members[rank], self.group, self._tag(True, rank)) for rank, tensor in outgoing]

        def wait() -> None:
            for work in works:
                work.wait()
            for letter, tensors in unpack:
                for tensor, part in zip(tensors, letter.split([tensor.numel() for tensor in tensors]), strict=True):
                    tensor.view(-1).copy_(part)
            held.clear()
            unpack.clear()

        return Transfer(wait) if works else Transfer()

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


def _letters(messages: Sequence[Message], pack: bool) -> tuple[list[Message], list[tuple[torch.Tensor, list[torch.Tensor]]]]:
    """Small messages to one rank made one. Both ends see the same sizes, so they agree. Returns messages, and which of them hold what."""
    by_rank: dict[int, list[torch.Tensor]] = {}
    for rank, tensor in messages:
        by_rank.setdefault(rank, []).append(tensor)
    letters, contents = list[Message](), list[tuple[torch.Tensor, list[torch.Tensor]]]()
    for rank, tensors in by_rank.items():
        together = len(tensors) > 1 and len({tensor.dtype for tensor in tensors}) == 1 and sum(map(size_of, tensors)) <= LETTER_BYTES
        if not together:
            letters += [(rank, tensor) for tensor in tensors]
            continue
        flat = [tensor.view(-1) for tensor in tensors]
        letter = torch.cat(flat) if pack else flat[0].new_empty(sum(map(len, flat)))
        letters.append((rank, letter))
        contents.append((letter, tensors))
    return letters, contents
