"""What tests of channels have ranks do, with gloo on a CPU or NCCL on a GPU that they share."""

from __future__ import annotations

from random import Random

import torch

from longca.parallel.comm.base import CHANNELS, Transfer
from longca.parallel.comm.distributed import TorchComm


def other_channels_go_on(comm: TorchComm) -> float:
    """Rank 0 waits for keys that rank 1 sends only when it has gradients, which rank 0 posts later."""
    keys, gradients = (comm.sub(range(comm.size), channel) for channel in ("keys", "gradients"))
    first, second = (torch.zeros(1, device=comm.device) for _ in range(2))
    for channel in (keys, gradients) if comm.rank < 2 else ():
        # NCCL connects two ranks when both post their first message, and a host waits for that
        channel.exchange([(1 - comm.rank, first)], [(1 - comm.rank, second)]).wait()
    if comm.rank == 0:
        sent = first + 5  # the first launch of a kernel loads it, which waits for the device, so also for what comes
        coming = keys.exchange([], [(1, second)])
        gradients.exchange([(1, sent)], []).wait()
        coming.wait()
    if comm.rank == 1:
        gradients.exchange([], [(0, first)]).wait()
        keys.exchange([(0, torch.full_like(first, 2 * float(first)))], []).wait()
    return float(second)


def random_posts(comm: TorchComm, seed: int, posts: int) -> int:
    """Ranks of random subsets send each other numbers on random channels, all posted in one order; each rank waits for them in an order
    of its own. Returns how many numbers arrived as they should."""
    common, own, right = Random(seed), Random(f"{seed} {comm.rank}"), 0
    pending: list[tuple[Transfer, torch.Tensor, float]] = []

    def take(number: int) -> int:
        transfer, buffer, wanted = pending.pop(number)
        transfer.wait()
        return int(bool((buffer == wanted).all()))

    for post in range(posts):
        members = sorted(common.sample(range(comm.size), common.randint(2, comm.size)))
        channel, length = common.choice(CHANNELS), common.choice([1, 1000, 300_000])
        if comm.rank not in members:
            continue
        some = comm.sub(members, channel)
        to, source = (some.rank + 1) % some.size, (some.rank - 1) % some.size
        buffer = torch.zeros(length, device=comm.device)
        sent = torch.full((length,), float(100 * post + comm.rank), device=comm.device)
        pending.append((some.exchange([(to, sent)], [(source, buffer)]), buffer, 100.0 * post + members[source]))
        while pending and own.random() < 0.5:
            right += take(own.randrange(len(pending)))
    while pending:
        right += take(own.randrange(len(pending)))
    return right


def relayed_beside(comm: TorchComm, turns: int) -> list[float]:
    """What came from two ranks away, doubled on the way beside other work; in each turn other numbers through memory that is used again."""
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    relays, work = comm.sub(range(comm.size), "relays"), torch.ones(256, 256, device=comm.device)
    arrived = []
    for turn in range(turns):
        landed, final = (torch.zeros(50_000, device=comm.device) for _ in range(2))
        sent = torch.full_like(landed, float(10 * turn + comm.rank))
        first = comm.exchange([(to, sent)], [(source, landed)])

        def pass_on(first: Transfer = first, landed: torch.Tensor = landed, final: torch.Tensor = final) -> Transfer:
            first.wait()
            return relays.exchange([(to, landed * 2)], [(source, final)])

        passed_on = comm.beside(pass_on)
        for _ in range(20):
            work = (work @ work).clamp(-1, 1)
        passed_on().wait()
        comm.join()
        arrived.append(final.mean())
    return [float(x) for x in arrived]


def waited_for_elsewhere(comm: TorchComm, turns: int) -> list[float]:
    """What arrived in transfers that one stream posted and another one waited for, whose memory the first one then takes again."""
    on_gpu = comm.device.type == "cuda"
    other = torch.cuda.Stream(comm.device) if on_gpu else None
    to, source = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    arrived = []
    for turn in range(turns):
        buffer = torch.zeros(1_000_000, device=comm.device)
        transfer = comm.exchange([(to, torch.full_like(buffer, float(turn + comm.rank)))], [(source, buffer)])
        with torch.cuda.stream(other):
            transfer.wait()
            arrived.append((buffer * 1).mean())
        del buffer, transfer
        torch.full((1_000_000,), -1.0, device=comm.device)  # gets that memory, were it not marked as used by the other stream
    if other is not None:
        other.synchronize()
    return [float(x) for x in arrived]
