"""NullComm: every transfer ends at once and moves nothing, so a program takes only the time of its computation."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from longca.parallel.comm.base import Channel, Comm, Message, Operation, Traffic, Transfer


class NullComm(Comm):
    def __init__(self, rank: int, size: int, device: str | torch.device = "cpu", members: Sequence[int] = ()) -> None:
        super().__init__(members or range(size), rank, torch.device(device), Traffic())

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        return Transfer()

    def sub(self, ranks: Sequence[int], channel: Channel = "keys") -> NullComm:
        members = [self.members[rank] for rank in ranks]
        group = NullComm(members.index(self.members[self.rank]), len(members), self.device, members)
        group.traffic = self.traffic
        return group
