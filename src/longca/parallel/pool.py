"""A pool of ranks on this machine: long-lived processes that take jobs as JSON over pipes. No job outlives its deadline."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longca import devices
from longca.errors import BadInput, LongcaError, Unavailable
from longca.parallel.joining import START_S

GRACE_SECONDS = 3.0  # for the other ranks, once one has failed
BURY_SECONDS = 20.0  # for all ranks to be gone once they are killed: a driver may hold one for ever, and nobody should wait for that
LAST_WORDS = 12  # lines


class RankFailed(LongcaError):
    """A job that did not end well. `kind`: died, timeout, error, oom, refused or unavailable; `last_words`: the end of stderr."""

    exit_code = 1

    def __init__(self, rank: int, kind: str, message: str, last_words: str) -> None:
        super().__init__(f"rank {rank} {message}" + (f"; its last words: {last_words}" if last_words else "."))
        self.rank, self.kind, self.message, self.last_words = rank, kind, message, last_words


@dataclass
class RankProcess:
    process: subprocess.Popen[bytes]
    answers: int  # a file descriptor
    stderr: Path
    pending: bytes = b""
    said: list[dict[str, Any]] = field(default_factory=list)
    old_words: int = 0  # bytes of stderr from before this job

    def read(self) -> bool:
        """Take what has come; False at the end of the pipe."""
        part = os.read(self.answers, 1 << 20)
        *lines, self.pending = (self.pending + part).split(b"\n")
        self.said += [json.loads(line) for line in lines]
        return bool(part)

    def last_words(self) -> str:
        lines = self.stderr.read_bytes()[self.old_words :].decode(errors="replace").strip().splitlines()
        return " | ".join(line.strip() for line in lines[-LAST_WORDS:])

    def kill(self) -> None:
        """With everything it started: it leads its own process group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def bury(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.answers)


class Pool:
    """`with Pool(4) as pool: pool.run("module:function", {...}, deadline=60)`; after a failure the next job gets new ranks."""

    lost = False  # new ranks can always be started

    def __init__(self, ranks: int, backend: str = "gloo", threads: int = 1, start_s: float = START_S) -> None:
        if ranks < 1:
            raise BadInput(f"a pool needs at least 1 rank, not {ranks}.")
        if backend == "nccl" and ranks > len(devices.gpus()):
            raise Unavailable(f"{ranks} NCCL ranks need {ranks} GPUs, and this machine has {len(devices.gpus())}; ask for fewer ranks.")
        self.ranks, self.backend, self.threads, self.start_s = ranks, backend, threads, start_s
        self._members: list[RankProcess] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The processes of the ranks; empty while none are running."""
        return [member.process.pid for member in self._members]

    def run(self, job: str, args: dict[str, Any], deadline: float) -> list[Any]:
        """Run "module:function" on every rank; its answers by rank. Raises RankFailed, and then no rank is left running."""
        if not self._members:
            self._start()
            self._collect(self.start_s)
        line = json.dumps({"job": job, "args": args}).encode() + b"\n"
        for member in self._members:
            assert member.process.stdin is not None
            member.old_words = member.stderr.stat().st_size
            with contextlib.suppress(BrokenPipeError):  # it has died: the end of its answers says so
                member.process.stdin.write(line)
                member.process.stdin.flush()
        return self._collect(deadline)

    def close(self) -> None:
        for member in self._members:
            member.kill()
        deadline = time.monotonic() + BURY_SECONDS
        for member in self._members:
            member.bury(max(0.0, deadline - time.monotonic()))
        self._members = []
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="longca-ranks-")
        for rank in range(self.ranks):
            self._members.append(self._spawn(rank, Path(self._folder.name)))

    def _spawn(self, rank: int, folder: Path) -> RankProcess:
        mine, theirs = os.pipe()
        settings = {"rank": rank, "ranks": self.ranks, "backend": self.backend, "threads": self.threads}
        settings |= {"meeting": str(folder / "meeting"), "answers": theirs}
        path = os.pathsep.join(entry for entry in sys.path if entry)  # the ranks find what this process finds
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": str(self.threads)}
        if sys.platform == "linux":
            environment.setdefault("GLOO_SOCKET_IFNAME", "lo")  # one machine, whatever its name resolves to
        stderr = folder / f"rank{rank}.stderr"
        with stderr.open("wb") as words:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "longca.parallel.rank_process", json.dumps(settings)],
                stdin=subprocess.PIPE, stdout=words, stderr=words, pass_fds=(theirs,), env=environment, start_new_session=True,
            )  # fmt: skip
        os.close(theirs)
        return RankProcess(process, mine, stderr)

    def _collect(self, seconds: float) -> list[Any]:
        """One answer from each rank, or the reason why not, after which all ranks are gone."""
        deadline, silent = time.monotonic() + seconds, set(range(self.ranks))
        failures: list[RankFailed] = []
        with selectors.DefaultSelector() as selector:
            for rank, member in enumerate(self._members):
                selector.register(member.answers, selectors.EVENT_READ, rank)
            while silent and (left := deadline - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    rank, member = key.data, self._members[key.data]
                    alive = member.read()
                    if not alive:
                        selector.unregister(member.answers)
                    if not alive or member.said:
                        silent.discard(rank)
                        if found := self._failure_of(rank):
                            failures.append(found)
                            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        answers = [member.said.pop(0) if member.said else {} for member in self._members]
        if not failures and silent:
            words = {rank: self._members[rank].last_words() for rank in sorted(silent)}
            rank = next((rank for rank in words if words[rank]), min(silent))  # those that only wait for another say nothing
            failures = [RankFailed(rank, "timeout", f"did not answer within {seconds:g} s", words[rank])]
        if failures:
            if not all(answer.get("kind") == "refused" for answer in answers):  # refused by all, before anything was sent
                self.close()
            # a rank that died is the cause of the errors that the others saw
            raise min(failures, key=lambda failure: failure.kind != "died")
        return [answer["answer"] for answer in answers]

    def _failure_of(self, rank: int) -> RankFailed | None:
        member = self._members[rank]
        if not member.said:
            with contextlib.suppress(subprocess.TimeoutExpired):
                member.process.wait(1)
            return RankFailed(rank, "died", f"died with exit status {member.process.returncode}", member.last_words())
        kind = member.said[0].get("kind")
        return (
            RankFailed(rank, kind, f"failed: {member.said[0]['message']}", member.last_words() if kind == "error" else "") if kind else None
        )
