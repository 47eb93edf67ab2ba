"""Ranks that somebody else has started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from longca.errors import BadInput
from longca.parallel.joining import Launch, join, launched

PROGRAM = """
from longca.parallel.joining import join, launched
from parallel.jobs import collectives
comm = join(launched()).comm
print(comm.rank, comm.size, collectives(comm)[2], flush=True)
import os; os._exit(0)
"""


def test_who_started_this_process() -> None:
    assert launched({}) is None
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None  # a batch script, not a step of it
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert launched(torchrun) == Launch(5, 8, 1, 4)
    step = {"SLURM_PROCID": "9", "SLURM_STEP_NUM_TASKS": "16", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "8(x2)"}
    assert launched(step) == Launch(9, 16, 1, 8)
    shell = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1"}
    assert launched(shell) is None  # srun --pty bash
    assert launched(shell | {"RANK": "0", "WORLD_SIZE": "1"}) == Launch(0, 1, 0, 1)  # torchrun with one process, which is meant


def test_a_meeting_place_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(BadInput, match="MASTER_ADDR must give the address"):
        join(Launch(0, 2, 0, 2))


@pytest.mark.parametrize(("visible", "taken"), [(8, 3), (1, 0), (2, 1)])
def test_a_rank_takes_a_gpu_that_it_can_see(visible: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `srun --gpus-per-task=1` the fourth process of a node sees one GPU, which has the number 0."""
    import torch

    class Taken(Exception):
        pass

    def take(device: torch.device) -> None:
        raise Taken(device.index)

    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    monkeypatch.setattr(torch.cuda, "set_device", take)
    with pytest.raises(Taken, match=f"^{taken}$"):
        join(Launch(3, 8, 3, 8), "nccl")


@pytest.mark.slow
def test_two_processes_that_meet() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SLURM_STEP_NUM_TASKS": "2", "GLOO_SOCKET_IFNAME": "lo"}
    common |= {"OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env=os.environ | common | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}, stdout=-1, text=True
        )
        for rank in ("0", "1")
    ]
    assert [process.communicate(timeout=100)[0].strip() for process in ranks] == ["0 2 [0.0]", "1 2 [2.0, 2.0]"]
