"""The communicators of a group of ranks: a fixed number, made once by all of them, and ended when the group is closed.

Every channel is a communicator of its own. torch.distributed names the groups that it makes by a count that differs between replicas,
and splits them off the default group, for which all ranks of the job must come, also those of other replicas. So communicators are not
made by `new_group`: each is a backend that meets through the group's own store, under a name that only its members use.

*Why communicators that work at the same time cannot deadlock.* A rank posts from one thread, and a plan orders the posts of all ranks: if
two posts share a rank, every rank that takes part in both posts them in that order. Consider the first post, in that order, that does not
end. All posts before it have ended, so each of its ranks comes to it: a host waits only for posts that it has made, or inside a post until
the others make it too (NCCL connects two ranks at their first message). On the device a post starts after the work that its stream had
before: kernels, which end, and waits for earlier posts, which have ended. Then it needs multiprocessors. Kernels of later posts may hold
some while they wait, at most NCCL_MAX_CTAS for each of the 4 channels and one subgroup; attention gives its own back. So it gets them
where the device, or a rank's share of it, has more multiprocessors than 5 posts take (`processes/shared_gpu.py` sees to that). High
priority lets transfers begin before the blocks of a running attention that wait. CUDA loads a kernel at its first launch, which may wait
for all that its process has on the device; so for posts before it alone, which end.

*What a task on the second stream may read* (`Comm.beside`): what it received itself, and what was complete on the stream that posted it
when the task began, since that stream is not waited for later. What it writes may be read after `join`, or after the wait for a transfer
that it returns. *What may be waited for on another stream than the one that posted*: every transfer, as a wait makes the current stream
wait for the communicator's; the memory of the messages is then marked as used by that stream too.
"""

from __future__ import annotations

import atexit
import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakSet

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore

from longca.parallel.comm.base import CHANNELS, Channel, Message

TIMEOUT = timedelta(minutes=30)  # torch's own for gloo; jobs of LongCA have shorter deadlines
TAGS = 1 << 18  # of a channel: gloo's tags are small numbers; so many messages between two ranks are never under way at once

_numbers: defaultdict[tuple[str, tuple[int, ...]], itertools.count[int]] = defaultdict(itertools.count)
_open: WeakSet[Links] = WeakSet()


class Link:
    """A communicator of these ranks of the job. Every call starts something and returns what to wait for."""

    def __init__(self, backend: Any, members: tuple[int, ...], first_tag: int = 0) -> None:
        self.backend, self.members, self._first_tag = backend, members, first_tag
        self._place = {member: place for place, member in enumerate(members)}
        self._sent: defaultdict[tuple[bool, int], int] = defaultdict(int)

    def batch(self, sends: Sequence[Message], receives: Sequence[Message]) -> Any:
        """Starts all messages as one. Started one after the other, NCCL's would wait for each other."""
        self.backend._start_coalescing()
        for member, tensor in sends:
            self.backend.send([tensor], self._place[member], 0)
        for member, tensor in receives:
            self.backend.recv([tensor], self._place[member], 0)
        return self.backend._end_coalescing()

    def one_by_one(self, sends: Sequence[Message], receives: Sequence[Message]) -> list[Any]:
        """Starts each message by itself, receives first: a message that finds its receive waiting is not stored on the way."""
        works = [self.backend.recv([tensor], self._place[member], self._tag(False, member)) for member, tensor in receives]
        return works + [self.backend.send([tensor], self._place[member], self._tag(True, member)) for member, tensor in sends]

    def all_gather(self, whole: torch.Tensor, own: torch.Tensor) -> Any:
        return self.backend._allgather_base(whole, own)

    def reduce_scatter(self, total: torch.Tensor, whole: torch.Tensor) -> Any:
        return self.backend._reduce_scatter_base(total, whole)

    def _tag(self, is_send: bool, member: int) -> int:
        """Returns the number of the next message to or from a rank. Both ends count alike, so gloo pairs messages in order."""
        number = self._sent[is_send, member]
        self._sent[is_send, member] = (number + 1) % TAGS
        return self._first_tag + number


class Links:
    """The channels of the ranks of a process group, and the subgroups that they make later. gloo has one communicator for all channels:
    its messages have tags, and do not wait for each other."""

    def __init__(self, group: Any, device: torch.device) -> None:
        self.device, self.nccl = device, device.type == "cuda" and dist.get_backend(group) != "gloo"
        self.members = tuple(dist.get_process_group_ranks(group))
        self.rank = self.members.index(dist.get_rank())
        number = next(_numbers[group.group_name, self.members])  # the same on all members: they make a group's Comms in one order
        self._store = PrefixStore(f"longca/{number}/{device.type}", group.get_group_store())
        self.opening_s = 0.0
        self._subgroups: dict[tuple[int, ...], Link] = {}
        self.channels: dict[Channel, Link] = {}
        shared = None if self.nccl else self._backend("all", self.members)
        for place, channel in enumerate(CHANNELS):
            backend = self._backend(channel, self.members) if shared is None else shared
            self.channels[channel] = Link(backend, self.members, place * TAGS)
        _open.add(self)

    def of_some(self, members: Sequence[int]) -> Link:
        """Returns the communicator of some ranks, which they make at their first call."""
        some = tuple(members)
        if some not in self._subgroups:
            start = time.perf_counter()
            self._subgroups[some] = Link(self._backend(f"some/{','.join(map(str, some))}", some), some)
            self.opening_s += time.perf_counter() - start
        return self._subgroups[some]

    def _backend(self, name: str, members: tuple[int, ...]) -> Any:
        """Connects these ranks. NCCL would do so at the first call and want all of them then; a ring's first hop may need only some."""
        store, own = PrefixStore(name, self._store), members.index(self.members[self.rank])
        if not self.nccl:
            return dist.ProcessGroupGloo(store, own, len(members), timeout=TIMEOUT)
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options._timeout, options.global_ranks_in_group = TIMEOUT, list(members)
        options.group_name = f"longca {name}"  # type: ignore[assignment]  # a str with another name
        backend = dist.ProcessGroupNCCL(store, own, len(members), options)
        backend._set_sequence_number_for_group()
        backend.eager_connect_single_device(self.device)
        return backend

    def close(self, at_once: bool = False) -> None:
        """Ends all communicators, after what is under way, or at once: then no other rank is waited for."""
        links = [*self.channels.values(), *self._subgroups.values()]
        self.channels, self._subgroups = {}, {}
        for link in links:
            if self.nccl:
                link.backend.abort() if at_once else link.backend.shutdown()
            link.backend = None
        _open.discard(self)


@atexit.register
def _close_all() -> None:
    """gloo's threads must end before the interpreter does, so nothing may hold a communicator by then."""
    for links in list(_open):
        links.close(at_once=True)
