"""How long transfers between ranks take: point to point, all-gather and all-to-all, by size, inside a node and between nodes.

Each is sent as the methods send it, through `Comm`. A line of transfers.jsonl is one operation of one group at one size; every rank of the
group sends `bytes` to each rank that it sends to.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from longca.parallel.comm.base import Comm, Transfer
from longca.processes.shared_gpu import loaded_version

OPERATIONS = ("p2p", "all_gather", "all_to_all")
SIZES = {"cpu": tuple(4**power for power in range(5, 12)), "cuda": tuple(4**power for power in range(5, 14))}  # 1 KiB to 4 or 64 MiB
MOST_BYTES = {"cpu": 1 << 28, "cuda": 1 << 31}  # that a rank sends at once
SETTINGS = ("NCCL_", "TORCH_NCCL_", "GLOO_", "UCX_", "FI_", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_MPS_ACTIVE", "OMP_NUM_THREADS")
WARM_UPS, SAMPLES = 2, 7


class TransferTime(msgspec.Struct, omit_defaults=True):
    """A line of transfers.jsonl. `seconds` are samples, each the slowest rank's from a barrier on; `ranks` of the group on `nodes`."""

    op: str
    ranks: int
    nodes: int
    bytes: Annotated[int, Meta(ge=0)]
    seconds: Annotated[list[Annotated[float, Meta(gt=0)]], Meta(min_length=1)]
    backend: str
    device: str
    sharing: str = ""  # of GPUs by ranks, in words; empty: each has its own


class RankFacts(msgspec.Struct):
    """What a rank says of itself."""

    host: str
    device: str
    torch: str
    nccl: str
    settings: dict[str, str]  # variables of the environment that change transfers


@dataclass(frozen=True)
class RankPlace:
    """Where a rank runs: its node, numbered by first appearance. The node's name is shown, but not written into files."""

    rank: int
    node: int
    facts: RankFacts


def places(facts: list[RankFacts]) -> list[RankPlace]:
    nodes = {host: node for node, host in enumerate(dict.fromkeys(each.host for each in facts))}
    return [RankPlace(rank, nodes[each.host], each) for rank, each in enumerate(facts)]


def groups(ranks: list[RankPlace]) -> list[tuple[str, list[int]]]:
    """Operations and the ranks that take part: a pair of one node, a pair of two nodes, all ranks of the first node, all ranks."""
    first = [place.rank for place in ranks if place.node == 0]
    away = [place.rank for place in ranks if place.node]
    everybody = [place.rank for place in ranks]
    pairs = ([first[:2]] if len(first) > 1 else []) + ([[0, away[0]]] if away else [])
    sets = ([first] if len(first) > 1 else []) + ([everybody] if away else [])
    return [("p2p", pair) for pair in pairs] + [(op, members) for members in sets for op in OPERATIONS[1:]]


def measure_transfers(
    run: Callable[[str, dict[str, Any], float], list[Any]], ranks: list[RankPlace], device: str, deadline: float, sharing: str = ""
) -> Iterator[TransferTime]:
    """Lines as they come; `run` is a group's: it runs a job on all ranks and returns their answers. `sharing` says how they share GPUs."""
    backend = "nccl" if device == "cuda" else "gloo"
    for op, members in groups(ranks):
        fan_out = 1 if op == "p2p" else len(members) - 1
        sizes = [size for size in SIZES[device] if size * fan_out <= MOST_BYTES[device]]
        answers = run(f"{__name__}:sample", {"op": op, "members": members, "sizes": sizes}, deadline)
        nodes = len({ranks[member].node for member in members})
        mine = [answers[member] for member in members]
        for number, size in enumerate(sizes):
            seconds = [max(each) for each in zip(*(answer[number] for answer in mine), strict=True)]
            yield TransferTime(op, len(members), nodes, size, [float(f"{value:.6g}") for value in seconds], backend, device, sharing)


def facts(comm: Comm) -> dict[str, Any]:
    """A job: what this rank runs on."""
    import torch

    on_gpu = comm.device.type == "cuda"
    return msgspec.to_builtins(  # type: ignore[no-any-return]
        RankFacts(
            host=os.environ.get("NCCL_HOSTID") or socket.gethostname(),
            device=torch.cuda.get_device_name(comm.device) if on_gpu else "cpu",
            torch=str(torch.__version__),
            nccl=loaded_version() if on_gpu else "",
            settings={name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
        )
    )


def sample(comm: Comm, op: str, members: list[int], sizes: list[int]) -> list[list[float]]:
    """A job: seconds of each sample at each size on this rank; nothing on ranks that take no part."""
    if comm.rank not in members:
        return []
    group = comm.subgroup(members)
    return [[_once(group, op, size) for _ in range(WARM_UPS + SAMPLES)][WARM_UPS:] for size in sizes]


def _once(group: Comm, op: str, size: int) -> float:
    import torch

    def buffer() -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, device=group.device)

    def settle() -> None:
        if group.device.type == "cuda":
            torch.cuda.synchronize(group.device)

    sends, receives = ([buffer() for _ in range(group.size)] for _ in range(2))
    post: dict[str, Callable[[], Transfer]] = {
        "p2p": lambda: group.exchange([(1, sends[1])], []) if group.rank == 0 else group.exchange([], [(0, receives[0])]),
        "all_gather": lambda: group.all_gather([sends[0]], [[x] for x in receives]),
        "all_to_all": lambda: group.all_to_all([[x] for x in sends], [[x] for x in receives]),
    }
    group.barrier()
    settle()
    start = time.perf_counter()
    post[op]().wait()
    settle()
    return time.perf_counter() - start
