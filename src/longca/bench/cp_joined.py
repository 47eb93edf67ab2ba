"""Ranks that torchrun or srun started: the first runs the suite and writes the journal, the others do what it says."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist

from longca.errors import LongcaError
from longca.parallel.comm.distributed import TorchComm
from longca.parallel.pool import RankFailed
from longca.parallel.rank_process import kind_of

Fields = dict[str, Any]
GRACE_S = 5.0  # that followers wait longer than the first rank, which has a record to write


class Joined:
    """The first rank's side, with the interface of a pool. A rank that does not answer ends the job; the same command goes on."""

    def __init__(self, comm: TorchComm) -> None:
        self._comm, self._lost = comm, False

    def run(self, job: str, args: Fields, deadline: float) -> list[Any]:
        if self._lost:
            raise LongcaError("the ranks of this job no longer answer; start it again, and it goes on with the next cell.")
        found: list[Fields] = []
        task: Fields = {"job": job, "args": args, "deadline": deadline}
        worker = threading.Thread(target=lambda: found.extend(_together(self._comm, task)), daemon=True)
        worker.start()
        worker.join(deadline)
        if worker.is_alive() or not found:
            self._lost = True
            raise RankFailed(0, "timeout", f"had no answer from all ranks within {deadline:g} s", "")
        failures = [
            RankFailed(rank, answer["kind"], f"failed: {answer['message']}", answer["words"])
            for rank, answer in enumerate(found)
            if "kind" in answer
        ]
        if failures:
            raise failures[0]
        return [answer["answer"] for answer in found]

    def close(self) -> None:
        if not self._lost:
            _together(self._comm, {"job": "", "args": {}, "deadline": 0.0})
            leave(self._comm)


def leave(comm: TorchComm) -> None:
    """Together: a rank that goes early takes its connections with it."""
    comm.barrier()
    dist.destroy_process_group()


def follow(comm: TorchComm) -> None:
    """Every other rank's side: take tasks until there are no more. One that outlives its deadline ends this process, and so the job."""
    while True:
        ended = threading.Event()
        task = _hear(comm, None)
        if not task["job"]:
            leave(comm)
            return
        threading.Thread(target=_watch, args=(ended, task["deadline"] + GRACE_S), daemon=True).start()
        _answer(comm, task)
        ended.set()


def _watch(ended: threading.Event, seconds: float) -> None:
    start = time.monotonic()
    if not ended.wait(seconds):
        print(f"longca: this rank is not done after {time.monotonic() - start:.0f} s, so it ends.", file=sys.stderr, flush=True)
        os._exit(1)


def _together(comm: TorchComm, task: Fields) -> list[Fields]:
    if comm.device.type == "cuda":
        torch.cuda.set_device(comm.device)  # a thread has its own
    _hear(comm, task)
    return _answer(comm, task) if task["job"] else []


def _hear(comm: TorchComm, task: Fields | None) -> Fields:
    """The first rank's task, told to all."""
    text = b"" if task is None else json.dumps(task).encode()
    size = torch.tensor([len(text)], device=comm.device)
    dist.broadcast(size, 0)
    letters = _letters(text, int(size), comm)
    dist.broadcast(letters, 0)
    heard: Fields = json.loads(bytes(letters.tolist()))
    return heard


def _answer(comm: TorchComm, task: Fields) -> list[Fields]:
    """Do it, and give all answers to all ranks."""
    module, _, function = task["job"].partition(":")
    try:
        mine = {"answer": getattr(import_module(module), function)(comm, **task["args"])}
    except Exception as error:
        traceback.print_exc()
        mine = {"kind": kind_of(error), "message": str(error) or type(error).__name__, "words": f"{type(error).__name__}: {error}"}
    text = json.dumps(mine).encode()
    sizes = [torch.zeros(1, dtype=torch.int64, device=comm.device) for _ in range(comm.size)]
    dist.all_gather(sizes, torch.tensor([len(text)], device=comm.device))
    longest = max(int(size) for size in sizes)
    answers = [_letters(b"", longest, comm) for _ in range(comm.size)]
    dist.all_gather(answers, _letters(text, longest, comm))
    return [json.loads(bytes(letters[: int(size)].tolist())) for letters, size in zip(answers, sizes, strict=True)]


def _letters(text: bytes, room: int, comm: TorchComm) -> torch.Tensor:
    """JSON as numbers, which is all that travels between ranks."""
    return torch.tensor([*text, *bytes(room - len(text))] if text else [0] * room, dtype=torch.uint8, device=comm.device)
