"""Joining a job of several machines: under torchrun or srun every process is one rank already, and needs no pool."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from longca.errors import BadInput

if TYPE_CHECKING:
    from longca.parallel.comm.distributed import TorchComm


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
    if "SLURM_STEP_NUM_TASKS" in environment:  # only a step has it: a batch script by itself is no rank
        per_node = re.match(r"\d+", environment.get("SLURM_STEP_TASKS_PER_NODE", "1"))
        rank, local_rank = int(environment["SLURM_PROCID"]), int(environment["SLURM_LOCALID"])
        return Launch(rank, int(environment["SLURM_STEP_NUM_TASKS"]), local_rank, int(per_node[0]) if per_node else 1)
    return None


def join(launch: Launch, backend: str = "gloo") -> TorchComm:
    """Meet the other ranks at MASTER_ADDR:MASTER_PORT; with NCCL this process takes the GPU of its local rank."""
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise BadInput(
            f"{' and '.join(missing)} must say where the ranks meet; torchrun sets both, under srun export the first node's name."
        )
    import torch
    import torch.distributed as dist

    from longca.parallel.comm.distributed import TorchComm

    device = torch.device("cuda", launch.local_rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(backend, "env://", rank=launch.rank, world_size=launch.ranks)
    return TorchComm(device=device)
