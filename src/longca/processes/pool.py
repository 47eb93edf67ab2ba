"""A pool of ranks on this machine: long-lived processes that run jobs together. No job outlives its deadline."""

from __future__ import annotations

import math
import os
import selectors
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from longca import devices
from longca.errors import BadInput, Unavailable
from longca.parallel.joining import START_S
from longca.processes import child as supervisor
from longca.processes.child import Child
from longca.processes.lost import SILENT_S, ChildLost, last_words
from longca.processes.ranks import OTHER, Answer, Failure, RankFailed, failed, to_blame, unanswered
from longca.processes.shared_gpu import MpsDaemon, rank_environment, start_mps
from longca.results.problem import Sharing
from longca.text import plural

GRACE_S = 3.0  # for the other ranks, once one has failed


class Pool:
    """`with Pool(4) as pool: pool.run("module:function", {...}, deadline=60)`; after a failure the next job gets new ranks.

    `memory`: bytes of host memory for each rank with everything it starts; 0: no limit. `sharing`: how ranks share GPUs; None: one each.
    """

    lost = False  # new ranks can always be started

    def __init__(
        self,
        ranks: int,
        backend: str = "gloo",
        threads: int = 1,
        start_s: float = START_S,
        memory: int = 0,
        sharing: Sharing | None = None,
    ) -> None:
        if ranks < 1:
            raise BadInput(f"a pool needs at least 1 rank, not {ranks}.")
        self._per_gpu = sharing.ranks if sharing else 1
        if backend == "nccl" and ranks > self._per_gpu * len(devices.gpus()):
            needed = plural(-(-ranks // self._per_gpu), "GPU")
            raise Unavailable(f"{ranks} NCCL ranks need {needed}, and this machine has {len(devices.gpus())}; ask for fewer ranks.")
        self.ranks, self.backend, self.threads, self.start_s, self.memory = ranks, backend, threads, start_s, memory
        self.silent: Callable[[], None] | None = None  # called once where ranks do not answer for long
        self._children: list[Child] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._sharing = sharing
        self._mps: MpsDaemon | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return bool(self._children)

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        """Runs function(comm, **args) on every rank; returns the answers by rank. Raises RankFailed, and then no rank is left running,
        unless all ranks refused."""
        if any(child.busy for child in self._children):  # a job was interrupted
            self.close()
        if not self._children:
            self._start()
            self._collect(self.start_s)
        for child in self._children:
            child.send({"job": job, "args": args}, "job")
        return self._collect(deadline)

    def close(self) -> None:
        for child in self._children:
            child.end()
        deadline = time.monotonic() + supervisor.BURY_S
        for child in self._children:
            child.close(max(0.0, deadline - time.monotonic()))
        self._children = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        if self._mps is not None:
            self._mps.close()
            self._mps = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="longca-ranks-")
        meeting = str(Path(self._folder.name) / "meeting")
        environment = {"OMP_NUM_THREADS": str(self.threads)}
        if sys.platform == "linux":
            environment["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")  # one machine, whatever its name resolves to
        self._mps = start_mps(self._sharing)  # new ranks get a new one: what a killed rank leaves in it may stop them
        for rank in range(self.ranks):
            hello = {"rank": rank, "ranks": self.ranks, "backend": self.backend, "threads": self.threads, "meeting": meeting}
            hello["gpu"] = rank // self._per_gpu
            try:
                own = self._own(rank)
            except Unavailable:  # no NCCL that can share a GPU: the next job starts anew
                self.close()
                raise
            try:
                child = Child(
                    "longca.processes.ranks:Rank",
                    hello,
                    {"start": math.inf, "job": math.inf},  # the pool has its own deadlines, for all ranks together
                    memory=self.memory,
                    data_limit=0 if self.backend == "nccl" else self.memory,  # a CUDA context maps more than any limit allows
                    reply_type=Answer | Failure,
                    environment=environment | own,
                )
            except ChildLost as lost:
                self.close()
                raise RankFailed(rank, "died", lost.event, "") from lost
            self._children.append(child)

    def _own(self, rank: int) -> dict[str, str]:
        """The variables of one rank."""
        if self._sharing is None:
            return {}
        return rank_environment(self._sharing, self._mps.folder if self._mps else None, rank, self.ranks)

    def _collect(self, seconds: float) -> list[Any]:
        """Waits until all ranks are done; returns their answers. Raises RankFailed for the rank that is to blame."""
        results: dict[int, Answer | RankFailed] = {}
        start, waiting = time.monotonic(), set(range(self.ranks))
        end = start + seconds
        with selectors.DefaultSelector() as selector:
            for child in self._children:
                selector.register(child, selectors.EVENT_READ)
            while waiting and (left := end - time.monotonic()) > 0:
                selector.select(min(left, supervisor.LOOK_S))
                for rank in sorted(waiting):
                    if self._look(rank, results):
                        selector.unregister(self._children[rank])
                        waiting.remove(rank)
                if any(isinstance(result, RankFailed) for result in results.values()):
                    end = min(end, time.monotonic() + GRACE_S)
                if self.silent is not None and waiting and time.monotonic() - start > SILENT_S:
                    tell, self.silent = self.silent, None
                    tell()
        if failure := self._failure(results, sorted(waiting), seconds):
            raise failure
        return [result.answer for _, result in sorted(results.items()) if isinstance(result, Answer)]

    def _look(self, rank: int, results: dict[int, Answer | RankFailed]) -> bool:
        """Notes what a rank has answered or what became of it; returns whether there is no more to wait for."""
        child = self._children[rank]
        try:
            for reply in child.step(0):
                results[rank] = reply if isinstance(reply, Answer) else failed(rank, reply)
        except ChildLost as lost:
            results[rank] = RankFailed(rank, "oom" if lost.status == "oom" else "died", lost.event, last_words(lost.output))
            return True
        if not child.busy:
            results.setdefault(rank, Answer(None))  # it has started
        return not child.busy

    def _failure(self, results: dict[int, Answer | RankFailed], silent: list[int], seconds: float) -> RankFailed | None:
        """The failure to tell, after which no rank is left running unless all refused; None where all answered."""
        failures = [result for result in results.values() if isinstance(result, RankFailed)]
        if not failures and not silent:
            return None
        words = {rank: last_words(self._children[rank].output) for rank in silent}
        if len(failures) < self.ranks or any(failure.kind not in ("refused", OTHER) for failure in failures):
            self.close()
        if failures:
            return to_blame(failures)
        rank = next((rank for rank in silent if words[rank]), silent[0])  # those that only wait for another print nothing
        return RankFailed(rank, "timeout", unanswered(rank, silent, seconds), words[rank])
