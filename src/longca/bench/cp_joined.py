"""Ranks that torchrun or srun started: the first runs the suite and writes the journal, the others do what it says.

They talk over the store at which they met, not by collectives: nobody can be stuck in a conversation, and who waits for a task notices
when there is nobody left to give one.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from longca.errors import LongcaError
from longca.parallel.comm.base import Comm
from longca.parallel.joining import Job
from longca.parallel.pool import RankFailed
from longca.parallel.rank_process import kind_of

Fields = dict[str, Any]
GRACE_S = 10.0  # for the other ranks, once one has failed: they may be about to fail, too, and then the job can go on
LOOK_S = 1.0  # between two looks at the store while this rank measures: more would take its time
POLL_S = 0.005, 0.1  # the same where this rank only waits, at first and after a while
GONE = "gone"  # the first rank says so where it leaves without a goodbye
FAREWELL = ""


class FirstIsGone(LongcaError):
    """Said by a rank that is left alone."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("the first rank is gone, so this one ends, too; start the job again, and it goes on.")


class Joined:
    """The first rank's side, with the interface of a pool. A rank that does not answer ends the job; the same command goes on."""

    def __init__(self, job: Job) -> None:
        self._comm, self._store = job
        self._number, self.lost = 0, False

    def run(self, job: str, args: Fields, deadline: float) -> list[Any]:
        if self.lost:
            raise LongcaError("the ranks of this job no longer answer; start it again, and it goes on with the next cell.")
        self.lost = True  # until all have answered: whatever ends this call before leaves them in the middle of something
        task: Fields = {"job": job, "args": args, "deadline": deadline}
        self._tell(task)
        part = Part(self._comm, task)
        part.start()
        self._wait(part, deadline)
        answers = [part.answer, *(self._take(_answer_of(self._number, rank)) for rank in range(1, self._comm.size))]
        failures = [
            RankFailed(rank, answer["kind"], f"failed: {answer['message']}", answer["words"])
            for rank, answer in enumerate(answers)
            if answer is not None and "kind" in answer
        ]
        if None not in answers:
            self._store.delete_key(_task(self._number))
            self.lost = False
        elif not failures:
            failures = [RankFailed(answers.index(None), "timeout", f"did not answer within {deadline:g} s", "")]
        if failures:
            raise failures[0]
        return [answer["answer"] for answer in answers if answer is not None]

    def close(self) -> None:
        """A goodbye, for which all ranks must listen; those that may not are told to stop by `lead`."""
        if self.lost:
            return
        self.lost = True
        self._tell({"job": FAREWELL})
        _await(self._store, [_answer_of(self._number, rank) for rank in range(1, self._comm.size)], GRACE_S)

    def _tell(self, task: Fields) -> None:
        self._number += 1
        self._store.set(_task(self._number), json.dumps(task))

    def _wait(self, part: Part, seconds: float) -> None:
        """Until all have answered or the time is over, of which little is left once one has failed: it may be the only one to know."""
        others = [_answer_of(self._number, rank) for rank in range(1, self._comm.size)]
        end, failed = time.monotonic() + seconds, False
        while (left := end - time.monotonic()) > 0:
            part.join(min(left, LOOK_S))
            if part.answer is not None and (not others or self._store.check(others)):
                return
            if not failed and ((part.answer or {}).get("kind") or self._store.check([_failed(self._number)])):
                failed, end = True, min(end, time.monotonic() + GRACE_S)
            if part.answer is not None:
                time.sleep(POLL_S[0])

    def _take(self, key: str) -> Fields | None:
        if not self._store.check([key]):
            return None
        found: Fields = json.loads(self._store.get(key))
        self._store.delete_key(key)
        return found


class Part(threading.Thread):
    """What the first rank itself does for a task: it may never come back."""

    def __init__(self, comm: Comm, task: Fields) -> None:
        super().__init__(daemon=True)
        self._comm, self._task = comm, task
        self.answer: Fields | None = None

    def run(self) -> None:
        self.answer = _do(self._comm, self._task)


def lead(job: Job, measure: Callable[[], int]) -> int:
    """The first rank's work. Where it ends without a goodbye, others may be busy with what nobody waits for any more: they are told to
    drop it, and have a moment to hear it before the store ends with this process."""
    try:
        return measure()
    finally:
        job.store.set(GONE, "")
        _await(job.store, [_heard(rank) for rank in range(1, job.comm.size)], 2 * LOOK_S)


def follow(job: Job) -> int:
    """Every other rank's side: take tasks until there are no more. One that outlives its deadline ends this process, and so the job."""
    comm, store = job
    number = 0
    while True:
        number += 1
        task = _hear(job, number)
        if task["job"] == FAREWELL:
            store.set(_heard(comm.rank), "")
            store.set(_answer_of(number, comm.rank), "")
            return 0
        ended = threading.Event()
        threading.Thread(target=_watch, args=(job, ended, task["deadline"] + GRACE_S), daemon=True).start()
        mine = _do(comm, task)
        ended.set()
        store.set(_answer_of(number, comm.rank), json.dumps(mine))
        if "kind" in mine:
            store.set(_failed(number), "")


def _hear(job: Job, number: int) -> Fields:
    """The first rank's next task; it may take its time, as long as it is there."""
    with suppress(dist.DistNetworkError):  # the store was in the first rank's process
        for _ in _looks(float("inf")):
            if job.store.check([_task(number)]):
                heard: Fields = json.loads(job.store.get(_task(number)))
                return heard
            if _first_is_gone(job):
                break
    raise FirstIsGone


def _watch(job: Job, ended: threading.Event, seconds: float) -> None:
    """Ends this process where its task takes too long, or where nobody waits for it any more."""
    end = time.monotonic() + seconds
    while not ended.wait(max(0.0, min(LOOK_S, end - time.monotonic()))):
        reason = str(FirstIsGone()) if _first_is_gone(job) else ""
        if time.monotonic() >= end:
            reason = reason or f"this rank is not done after {seconds:.0f} s, so it ends."
        if reason:
            print(f"longca: {reason}", file=sys.stderr, flush=True)
            os._exit(1)


def _first_is_gone(job: Job) -> bool:
    try:
        if not job.store.check([GONE]):
            return False
        job.store.set(_heard(job.comm.rank), "")
    except dist.DistNetworkError:
        pass
    return True


def _await(store: Store, keys: list[str], seconds: float) -> None:
    """Until all are there, for so long. (Torch has that, too, but complains at length when the time is over.)"""
    for _ in _looks(seconds):
        if not keys or store.check(keys):
            return


def _looks(seconds: float) -> Iterator[None]:
    """Often at first, then less often: many ranks ask one store."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < seconds:
        yield
        time.sleep(min(max(POLL_S[0], waited / 10), POLL_S[1]))


def _do(comm: Comm, task: Fields) -> Fields:
    module, _, function = task["job"].partition(":")
    try:
        if comm.device.type == "cuda":
            torch.cuda.set_device(comm.device)  # a thread has its own
        answer = getattr(import_module(module), function)(comm, **task["args"])
        found: Fields = json.loads(json.dumps({"answer": answer}))
        return found
    except BaseException as error:  # a method may leave by sys.exit; the first rank wants to know that, too
        traceback.print_exc()
        return {"kind": kind_of(error), "message": str(error) or type(error).__name__, "words": f"{type(error).__name__}: {error}"}


def _task(number: int) -> str:
    return f"{number}/task"


def _answer_of(number: int, rank: int) -> str:
    return f"{number}/answer/{rank}"


def _failed(number: int) -> str:
    return f"{number}/failed"


def _heard(rank: int) -> str:
    return f"heard/{rank}"
