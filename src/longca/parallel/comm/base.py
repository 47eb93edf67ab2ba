"""Comm: the small set of transfers that every method is written with.

Posting and waiting are separate, every call brings the buffers it receives into, and buffers come from `empty`; so a program says
everything a recorder needs to know about it. Messages between two ranks arrive in the order in which they were posted on a channel.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

import torch

from longca.masks import AnyMask, Mask

T = TypeVar("T")
Message = tuple[int, torch.Tensor]  # a rank of this Comm, and what it gets or where its message goes: contiguous
Operation = Literal["exchange", "all_to_all", "all_gather", "reduce_scatter"]
# Messages of different channels do not wait for each other. Relays are also the keys that go from window to window.
Channel = Literal["keys", "gradients", "relays", "relayed gradients"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)


@dataclass
class Traffic:
    """Counts what one rank sent, over its Comm and all Comms made from that one by `sub`."""

    sent_bytes: int = 0
    messages: int = 0

    def reset(self) -> None:
        self.sent_bytes = self.messages = 0


@dataclass(frozen=True)
class AttentionCall:
    """One call of the local kernel, as recorders see it."""

    backward: bool
    area: int  # visible pairs of one query head; of a block pattern the mean over its heads
    rows: int
    keys: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    dtype: str
    tiles: int  # of 128 x 128 pairs with a visible one; of a block pattern the mean over its heads
    kernel: str
    lse: bool  # whether the caller merges by lse, so that the kernel must give it
    make_mask: Callable[[], AnyMask] = field(compare=False, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"make_mask": None}  # other processes do not need the mask

    @property
    def bands(self) -> int:
        """Returns the number of bands of this call's mask, which is cut for this."""
        mask = self.make_mask()
        return len(mask.bands.q0) if isinstance(mask, Mask) else 0

    @property
    def mask_digest(self) -> str:
        return self.make_mask().digest


class Transfer:
    """A posted transfer. After `wait`, its buffers may be read and its sent tensors overwritten; a second wait does nothing."""

    def __init__(self, wait: Callable[[], None] | None = None) -> None:
        self._wait = wait

    def wait(self) -> None:
        wait, self._wait = self._wait, None  # forgetting it also lets go of the buffers
        if wait is not None:
            wait()

    def then(self, finish: Callable[[], None]) -> Transfer:
        """Returns a transfer whose wait waits for this one and then calls `finish`."""

        def both() -> None:
            self.wait()
            finish()

        return Transfer(both)


def all_of(transfers: Sequence[Transfer]) -> Transfer:
    """Several transfers as one: `wait` waits for each of them in turn."""

    def wait() -> None:
        for transfer in transfers:
            transfer.wait()

    return Transfer(wait)


class Comm(ABC):
    """Rank `rank` of `size` ranks; `members` are their numbers in the whole job."""

    shapes_only = False
    opening_s = 0.0  # that communicators took to be made
    own_collectives = False  # whether even all-gathers and sums are the backend's own collectives, not pairs of messages

    def __init__(self, members: Sequence[int], rank: int, device: torch.device, traffic: Traffic) -> None:
        self.members, self.rank, self.size = tuple(members), rank, len(members)
        self.device, self.traffic = device, traffic

    # -- what a kind of Comm fills in -------------------------------------------------------------------------------------------

    @abstractmethod
    def _post(self, operation: Operation, sends: Sequence[Message], receives: Sequence[Message]) -> Transfer:
        """Starts these messages, none of which is to this rank itself."""

    @abstractmethod
    def sub(self, ranks: Sequence[int], channel: Channel = "keys") -> Comm:
        """Returns some of these ranks, which include this one, as a Comm whose messages travel through a channel of the whole group.

        All that share a channel share its order: two ranks post what they send each other in the same order, whatever Comm it is posted on.
        """

    def subgroup(self, ranks: Sequence[int]) -> Comm:
        """Returns a Comm of some of these ranks, which include this one, that has the backend's own collectives. Its members make it
        together."""
        return self.sub(ranks)

    def empty(self, shape: Sequence[int], dtype: torch.dtype, what: str = "") -> torch.Tensor:
        """Returns an uninitialised buffer. `what` names its purpose for recorders."""
        return torch.empty(tuple(shape), dtype=dtype, device=self.device)

    def beside(self, task: Callable[[], T]) -> Callable[[], T]:
        """Runs a task in parallel with the attention calls that follow: it waits for transfers, copies what arrived and posts it again.
        Returns a function that returns the task's result. Where nothing can run beside attention, this function runs the task."""
        return task

    def join(self) -> None:
        """Makes all later operations wait for the tasks that were given to `beside`."""
        return

    def note_attention(self, call: AttentionCall) -> None:
        """Records that the local kernel is called next. Does nothing except in recorders."""
        return

    # -- what methods call ------------------------------------------------------------------------------------------------------

    def exchange(self, sends: Sequence[Message], receives: Sequence[Message], operation: Operation = "exchange") -> Transfer:
        """Sends tensors and receives into buffers, any number per rank. A message to this rank itself is copied at once."""
        own = [buffer for rank, buffer in receives if rank == self.rank]
        for (_, tensor), buffer in zip([send for send in sends if send[0] == self.rank], own, strict=True):
            buffer.copy_(tensor)
        sends = [send for send in sends if send[0] != self.rank]
        receives = [receive for receive in receives if receive[0] != self.rank]
        self._count(sends)
        transfer = self._post(operation, sends, receives) if sends or receives else Transfer()
        return self._after_copies(transfer, own) if own else transfer

    def _after_copies(self, transfer: Transfer, copied: Sequence[torch.Tensor]) -> Transfer:
        """Returns the transfer; where copies are asynchronous, its wait also waits for these."""
        return transfer

    def _count(self, sends: Sequence[Message]) -> None:
        self.traffic.sent_bytes += sum(size_of(tensor) for _, tensor in sends)
        self.traffic.messages += len(sends)

    def all_to_all(self, sends: Sequence[Sequence[torch.Tensor]], receives: Sequence[Sequence[torch.Tensor]]) -> Transfer:
        """Sends sends[r] to rank r and receives receives[r] from it; shapes may differ from rank to rank."""
        return self.exchange(by_rank(sends), by_rank(receives), "all_to_all")

    def all_gather(self, tensors: Sequence[torch.Tensor], receives: Sequence[Sequence[torch.Tensor]]) -> Transfer:
        """Sends the tensors to all ranks and receives those of rank r into receives[r]; shapes may differ from rank to rank."""
        return self.exchange(by_rank([tensors] * self.size), by_rank(receives), "all_gather")

    def reduce_scatter(self, parts: Sequence[Sequence[torch.Tensor]], totals: Sequence[torch.Tensor]) -> Transfer:
        """Sets totals to the sums of what all ranks have for this one; parts[r] go to rank r. Sums have the totals' own type.

        Each part travels once in its own type, and this rank adds what it received: nothing is rounded on the way. Where
        `adds_on_the_way`, the backend adds, and there are no buffers for parts.
        """
        buffers = [
            list(mine)
            if rank == self.rank
            else [self.empty(total.shape, part.dtype, "parts") for total, part in zip(totals, mine, strict=True)]
            for rank, mine in enumerate(parts)
        ]
        sends = [send for send in by_rank(parts) if send[0] != self.rank]
        receives = [receive for receive in by_rank(buffers) if receive[0] != self.rank]

        def add() -> None:
            for index, total in enumerate(totals):
                total.copy_(buffers[0][index])
                for part in buffers[1:]:
                    total.add_(part[index])

        return self.exchange(sends, receives, "reduce_scatter").then(add)

    def adds_on_the_way(self, parts: Sequence[Sequence[torch.Tensor]], totals: Sequence[torch.Tensor]) -> bool:
        """Returns whether a reduce-scatter is the backend's own collective. It takes even parts, and no bf16: that would be rounded at
        every hop."""
        exact = all(total.dtype in (torch.float32, torch.float64) for total in totals)
        same = all(part.dtype == total.dtype for mine in parts for part, total in zip(mine, totals, strict=True))
        return self.own_collectives and exact and same and are_even(parts)

    def barrier(self) -> None:
        """Waits until all ranks have called it."""
        nothing = self.empty((1,), torch.uint8)
        nothing.zero_()
        self.all_gather([nothing], [[self.empty((1,), torch.uint8)] for _ in range(self.size)]).wait()


def are_even(tensors: Sequence[Sequence[torch.Tensor]]) -> bool:
    """Returns whether all ranks have tensors of the same shapes and types, none of them empty. Every rank gets the same answer."""
    first = [(tensor.shape, tensor.dtype) for tensor in tensors[0]]
    same = all([(tensor.shape, tensor.dtype) for tensor in several] == first for several in tensors)
    return len(tensors) > 1 and same and all(tensor.numel() for tensor in tensors[0])


def by_rank(tensors: Sequence[Sequence[torch.Tensor]]) -> list[Message]:
    return [(rank, tensor) for rank, several in enumerate(tensors) for tensor in several]


def size_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
