"""Ranks that torchrun or srun started: the first one runs the suite and writes the journal, the others run the jobs that it gives.

They talk through the store at which they met, not by collectives: no rank can hang in a collective that another one left, and a rank
that waits for a job notices when the first rank is gone. A rank whose job fails says so there, then ends its communicators; the others
end theirs where they wait for it, and all make new ones with the next job.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from longca.errors import LongcaError
from longca.parallel.joining import Job
from longca.processes.lost import SILENT_S
from longca.processes.ranks import OTHER, STOPPED, Answer, Failure, RankFailed, failed, run_job, to_blame, unanswered

if TYPE_CHECKING:
    from longca.parallel.comm.distributed import TorchComm

Task = dict[str, Any]
GRACE_S = 10.0  # for the other ranks, once one has failed: they may be about to fail too, and then the job can go on
STOP_S = 4.0  # after which a rank that has not failed too ends its communicators
WHOLE = ("refused", "unavailable", OTHER)  # kinds of failures that leave communicators as they were
LOOK_S = 1.0  # between two looks at the store while this rank measures: more would take its time
POLL_S = 0.005, 0.1  # the same where this rank only waits, at first and after a while
TASK, ANSWER, FAILED = "{}/task".format, "{}/answer/{}".format, "{}/failed".format  # keys of the store, by number of the task and rank
HEARD = "heard/{}".format  # set by a rank that knows of the end
GONE = "gone"  # set by the first rank when it ends
FAREWELL = ""  # the job after which there are no more


class FirstIsGone(LongcaError):
    """Raised in the other ranks when the first one has ended."""

    exit_code = 1

    def __init__(self) -> None:
        super().__init__("the first rank is gone, so this one ends too; start the job again to continue.")


class Joined:
    """The first rank's side, with the interface of a pool. A rank that does not answer ends the whole job; the same command resumes it."""

    def __init__(self, job: Job) -> None:
        self._comm, self._store = job
        self._number, self.lost, self._broken = 0, False, False
        self.silent: Callable[[], None] | None = None  # called once where ranks do not answer for long

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        """Runs function(comm, **args) on every rank; returns the answers by rank. Raises RankFailed."""
        if self.lost:
            raise LongcaError("the ranks of this job no longer answer; start it again to continue with the next cell.")
        self.lost = True  # until all have answered: whatever ends this call earlier leaves them in the middle of the job
        task: Task = {"job": job, "args": args, "deadline": deadline, "reopen": self._broken}
        self._tell(task)
        own: list[Answer | Failure] = []
        mine = Part(Job(self._comm, self._store), self._number)
        part = threading.Thread(target=lambda: own.append(mine.run(task)), daemon=True)  # it may never return
        part.start()
        self._wait(part, own, deadline, mine)
        answers = [own[0] if own else None, *(self._take(ANSWER(self._number, rank)) for rank in range(1, self._comm.size))]
        failures = [failed(rank, answer) for rank, answer in enumerate(answers) if isinstance(answer, Failure)]
        self._broken = any(failure.kind not in WHOLE for failure in failures)
        if None not in answers:
            self._store.delete_key(TASK(self._number))
            self.lost = False
        elif not failures:
            silent = [rank for rank, answer in enumerate(answers) if answer is None]
            failures = [RankFailed(silent[0], "timeout", unanswered(silent[0], silent, deadline), "")]
        if failures:
            raise to_blame(failures)
        return [answer.answer for answer in answers if isinstance(answer, Answer)]

    def close(self) -> None:
        """Tells the other ranks that there are no more jobs. Those that are in the middle of one are told by `lead`."""
        if self.lost:
            return
        self.lost = True
        self._tell({"job": FAREWELL})
        _await(self._store, [ANSWER(self._number, rank) for rank in range(1, self._comm.size)], GRACE_S)

    def _tell(self, task: Task) -> None:
        self._number += 1
        self._store.set(TASK(self._number), json.dumps(task))

    def _wait(self, part: threading.Thread, own: list[Answer | Failure], seconds: float, mine: Part) -> None:
        """Waits until all have answered or the time is over; little time is left once one has failed."""
        others = [ANSWER(self._number, rank) for rank in range(1, self._comm.size)]
        start = time.monotonic()
        end = start + seconds
        while (left := end - time.monotonic()) > 0:
            part.join(min(left, LOOK_S))
            if own and (not others or self._store.check(others)):
                return
            if mine.others_failed():
                end = min(end, time.monotonic() + GRACE_S)
            if self.silent is not None and time.monotonic() - start > SILENT_S:
                tell, self.silent = self.silent, None
                tell()
            if own:
                time.sleep(POLL_S[0])

    def _take(self, key: str) -> Answer | Failure | None:
        """Reads an answer and deletes it from the store; None where there is none."""
        if not self._store.check([key]):
            return None
        answer = msgspec.convert(json.loads(self._store.get(key)), Answer | Failure)
        self._store.delete_key(key)
        return answer


class Part:
    """One rank's part of a task."""

    def __init__(self, job: Job, number: int) -> None:
        self._job, self._key = job, FAILED(number)
        self._failed_since, self._stopped, self._ended = float("inf"), False, False

    def run(self, task: Task) -> Answer | Failure:
        """Runs the job. The first rank that fails tells the others, and only then ends its communicators: what they see of that is no
        failure of their own."""
        if task["reopen"]:
            answer = run_job(self._job.comm, {"job": f"{__name__}:reopen", "args": {}})
            if isinstance(answer, Failure):
                return answer
        answer = run_job(self._job.comm, task)
        self._ended = True
        was_second = isinstance(answer, Failure) and answer.kind == "error" and self._job.store.check([self._key])
        if self._stopped or was_second:
            answer = Failure(STOPPED, "stopped because another rank failed", "")
        if not isinstance(answer, Failure) or answer.kind == OTHER:
            return answer
        self._job.store.set(self._key, "")
        if answer.kind not in WHOLE:
            gc.collect()  # an exception may still hold what waits for others, and with it the connection
            self._job.comm.close(at_once=True)
        return answer

    def others_failed(self) -> bool:
        """Whether a rank has failed, this one too. If this rank is still at work a while later, its communicators end."""
        if not self._job.store.check([self._key]):
            return False
        self._failed_since = min(self._failed_since, time.monotonic())
        if not self._ended and not self._stopped and time.monotonic() - self._failed_since > STOP_S:
            self._stopped = True
            self._job.comm.close(at_once=True)
        return True


def reopen(comm: TorchComm) -> None:
    """A job: makes new communicators."""
    comm.reopen()


def lead(job: Job, measure: Callable[[], int]) -> int:
    """Runs the first rank's work. Tells the other ranks when it ends, in case they are in the middle of a job, and leaves them a moment to
    read that before the store ends with this process."""
    try:
        return measure()
    finally:
        job.store.set(GONE, "")
        _await(job.store, [HEARD(rank) for rank in range(1, job.comm.size)], 2 * LOOK_S)


def follow(job: Job) -> int:
    """Runs jobs until there are no more, on every rank but the first. A job that outlives its deadline ends this process, and so all."""
    comm, store = job
    number = 0
    while True:
        number += 1
        task = _hear(job, number)
        if task["job"] == FAREWELL:
            store.set(HEARD(comm.rank), "")
            store.set(ANSWER(number, comm.rank), "")
            return 0
        ended = threading.Event()
        part = Part(job, number)
        threading.Thread(target=_watch, args=(job, part, ended, task["deadline"] + GRACE_S), daemon=True).start()
        mine = part.run(task)
        ended.set()
        store.set(ANSWER(number, comm.rank), json.dumps(msgspec.to_builtins(mine)))


def _hear(job: Job, number: int) -> Task:
    """Waits for the first rank's next task, as long as the first rank is there."""
    with suppress(dist.DistNetworkError):  # the store was in the first rank's process
        for _ in _looks(float("inf")):
            if job.store.check([TASK(number)]):
                heard: Task = json.loads(job.store.get(TASK(number)))
                return heard
            if _first_is_gone(job):
                break
    raise FirstIsGone


def _watch(job: Job, part: Part, ended: threading.Event, seconds: float) -> None:
    """Ends this process when its task takes too long, or when the first rank is gone."""
    end = time.monotonic() + seconds
    while not ended.wait(max(0.0, min(LOOK_S, end - time.monotonic()))):
        reason = str(FirstIsGone()) if _first_is_gone(job) else ""
        with suppress(dist.DistNetworkError):  # it is gone, which is told next time
            part.others_failed()
        if time.monotonic() >= end:
            reason = reason or f"this rank is not done after {seconds:.0f} s, so it ends."
        if reason:
            print(f"longca: {reason}", file=sys.stderr, flush=True)
            os._exit(1)


def _first_is_gone(job: Job) -> bool:
    try:
        if not job.store.check([GONE]):
            return False
        job.store.set(HEARD(job.comm.rank), "")
    except dist.DistNetworkError:
        pass
    return True


def _await(store: Store, keys: list[str], seconds: float) -> None:
    """Waits at most so long until all keys are there. (Torch can do so too, but prints a long complaint when the time is over.)"""
    for _ in _looks(seconds):
        if not keys or store.check(keys):
            return


def _looks(seconds: float) -> Iterator[None]:
    """Yields often at first, then less often: many ranks ask one store."""
    start = time.monotonic()
    while (waited := time.monotonic() - start) < seconds:
        yield
        time.sleep(min(max(POLL_S[0], waited / 10), POLL_S[1]))
