"""What tests of faults have NCCL ranks do: all but one are in a collective, which waits on the device."""

from __future__ import annotations

import os
import sys
import time

import torch

from longca.parallel.comm.base import Comm


def together(comm: Comm) -> None:
    comm.barrier()
    torch.cuda.synchronize()


def greet(comm: Comm) -> list[int]:
    together(comm)
    return [comm.rank, os.getpid()]


def die(comm: Comm, rank: int) -> None:
    if comm.rank == rank:
        time.sleep(1)
        os.kill(os.getpid(), 9)
    together(comm)


def hang(comm: Comm, rank: int) -> None:
    if comm.rank == rank:
        print("waiting for Godot", file=sys.stderr, flush=True)
        time.sleep(1000)
    together(comm)


def fail(comm: Comm, rank: int) -> None:
    if comm.rank == rank:
        raise ValueError("seven is not prime enough")
    together(comm)


def take_all_memory(comm: Comm, rank: int) -> None:
    if comm.rank == rank:
        torch.empty(1 << 45, dtype=torch.uint8, device=comm.device)
    together(comm)
