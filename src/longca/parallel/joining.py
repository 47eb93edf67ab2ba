"""Joining a job of several machines: under torchrun or srun every process is one rank already, and needs no pool."""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from longca.errors import BadInput, LongcaError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from longca.parallel.comm.distributed import TorchComm

START_S = 120.0  # for all ranks to come: importing torch from a busy disk takes a while
KNOCK_S = 0.1  # between two attempts to reach the first rank
GROUP_TIMEOUT = timedelta(minutes=30)  # torch's own, for groups that methods make later


@dataclass(frozen=True)
class Launch:
    """Which rank this process is, of how many, and its place in its node."""

    rank: int
    ranks: int
    local_rank: int
    ranks_per_node: int


def end_process(code: int) -> NoReturn:
    """Everything is written, so the process ends here: gloo's threads now and then abort an interpreter that winds down."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def launched(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """What torchrun or srun says about this process; None where it was started by hand."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        rank, ranks = int(environment["RANK"]), int(environment["WORLD_SIZE"])
        return Launch(rank, ranks, int(environment.get("LOCAL_RANK", "0")), int(environment.get("LOCAL_WORLD_SIZE", "1")))
    # only a step has this: a batch script by itself is no rank; and a step of one task is a shell (srun --pty bash) or starts a pool
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks > 1:
        per_node = re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        rank, local_rank = int(environment["SLURM_PROCID"]), int(environment["SLURM_LOCALID"])
        return Launch(rank, tasks, local_rank, int(per_node[0]) if per_node else 1)
    return None


class Job(NamedTuple):
    """All ranks together: what they compute with, and a store of their own for messages. Torch's own is locked while it waits."""

    comm: TorchComm
    store: Store


@cache
def join(launch: Launch, backend: str = "gloo", seconds: float = START_S, ranks_per_gpu: int = 1) -> Job:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT; with NCCL this process takes the GPU of its local rank, of those
    that it can see: under `srun --gpus-per-task=1` each process sees its own alone. A process joins once."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise BadInput(
            f"{' and '.join(missing)} must give the address of the first rank; torchrun sets both, under srun export the first node's name."
        )
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore

    from longca.parallel.comm.distributed import TorchComm

    gpu = launch.local_rank // ranks_per_gpu % max(1, torch.cuda.device_count())
    device = torch.device("cuda", gpu) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = _meet(launch, seconds)
    dist.init_process_group(backend, store=PrefixStore("torch", store), rank=launch.rank, world_size=launch.ranks)
    return Job(TorchComm(device=device), PrefixStore("longca", store.clone()))


def _meet(launch: Launch, seconds: float) -> Any:
    """The store that the first rank, or torchrun, keeps for all; they are there when this returns.

    No type: torch's own do not know that a Store has `clone`.
    """
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    end = time.monotonic() + seconds
    try:
        if launch.rank:
            _reach(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), end)
        store = next(rendezvous("env://", rank=launch.rank, world_size=launch.ranks, timeout=timedelta(seconds=seconds)))[0]
        store.set(f"here/{launch.rank}", "")
        store.wait([f"here/{rank}" for rank in range(launch.ranks)], timedelta(seconds=max(1.0, end - time.monotonic())))
        store.set_timeout(GROUP_TIMEOUT)
    except (dist.DistError, OSError, ValueError) as error:  # the last: a port that is no number
        place, why = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", str(error).splitlines()[0].rstrip(".")
        raise LongcaError(
            f"the {launch.ranks} ranks of this job did not meet at {place} within {seconds:g} s ({why}); "
            "look at the output of the others, or give them more time with --deadline."
        ) from error
    return store


def _reach(host: str, port: int, end: float) -> None:
    """Wait until somebody listens there. Torch would do so, too, but fills the screen when nobody comes."""
    while True:
        try:
            with socket.create_connection((host, port), timeout=max(1.0, end - time.monotonic())):
                return
        except OSError:
            if time.monotonic() >= end:
                raise
            time.sleep(KNOCK_S)
