"""NullComm: transfers that are done at once and bring nothing. The same program on it takes the time that is not communication."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from longca.parallel.comm.base import Comm, Message, Operation, Traffic, Transfer


class NullComm(Comm):
    def __init__(self, rank: int, size: int, device: str | torch.device = "cpu", members: Sequence[int] = ()) -> None:
        super().__init__(members or range(size), rank, torch.device(device), Traffic())

    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        return Transfer()

    def sub(self, ranks: Sequence[int], label: str = "") -> NullComm:
        members = [self.members[rank] for rank in ranks]
        found = NullComm(members.index(self.members[self.rank]), len(members), self.device, members)
        found.traffic = self.traffic
        return found
