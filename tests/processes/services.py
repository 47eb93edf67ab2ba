"""Services and jobs of ranks that tests run in child processes; most of them do their worst."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MIB = 1 << 20


class Actor:
    """Does what each job says: the name of a method and its arguments."""

    def __init__(self, hello: Any, tell: Any) -> None:
        self.ready, self._tell = hello, tell

    def handle(self, job: list[Any]) -> Iterator[Any]:
        yield from getattr(self, job[0])(*job[1:]) or ()

    def echo(self, *values: Any) -> list[Any]:
        return list(values)

    def phases(self, *pairs: list[Any]) -> None:
        """Begins phases and stays in each for some seconds."""
        for phase, seconds in pairs:
            self._tell({"phase": phase})
            time.sleep(seconds)

    def count(self, path: str) -> None:
        """Writes to a file how often it and a process below it have looped, until the test removes the file."""
        below = not os.fork()
        file, n = Path(path + ".below") if below else Path(path), 0
        while file.parent.exists():
            n += 1
            file.write_text(str(n))
            time.sleep(0.001)

    def segfault(self) -> None:
        ctypes.string_at(0)

    def exit(self, code: int, words: str = "") -> None:
        print(words, file=sys.stderr, flush=True)
        os._exit(code)

    def fail(self) -> None:
        raise ValueError("seven is not prime enough")

    def hang(self) -> None:
        """In native code that holds the interpreter's lock, with all signals blocked."""
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - {signal.SIGKILL})
        ctypes.PyDLL(None).sleep(600)

    def flood(self, mebibytes: int) -> list[str]:
        for _ in range(mebibytes):
            os.write(1, b"x" * (MIB - 1) + b"\n")
        return ["dry"]

    def write(self, text: str) -> None:
        """Writes bytes to the supervisor's own channel, then hangs."""
        os.write(int(sys.argv[1]), bytes.fromhex(text))
        time.sleep(600)

    def write_endlessly(self) -> None:
        while True:
            os.write(int(sys.argv[1]), b"x" * MIB)

    def reply_and_write(self, text: str) -> Iterator[Any]:
        os.write(int(sys.argv[1]), b'{"reply": "good"}\n' + bytes.fromhex(text))
        time.sleep(600)
        yield

    def close_channel(self) -> None:
        os.close(int(sys.argv[1]))
        time.sleep(600)

    def read_nothing(self, seconds: float) -> None:
        time.sleep(seconds)

    def hoard(self, mebibytes: int) -> None:
        hoard(mebibytes)

    def hoard_below(self, mebibytes: int) -> None:
        """In a grandchild that has left the family and its environment."""
        detached([sys.executable, "-c", f"import time; x = bytearray(b'x') * ({mebibytes} << 20); time.sleep(600)"])
        time.sleep(600)

    def share(self, mebibytes: int, seconds: float) -> list[str]:
        """Children that all have the memory of this process, which is there once."""
        kept = bytearray(b"x") * (mebibytes * MIB)
        children = [os.fork() for _ in range(4)]
        if not all(children):
            time.sleep(600)
        time.sleep(seconds)
        return [f"{len(kept) // MIB} MiB"]

    def leave(self, how: str, file: str, dies: bool) -> None:
        """Starts processes that stay."""
        leave(how, file)
        if dies:
            os._exit(9)

    def leave_and_hang(self, file: str) -> None:
        leave("detached", file)
        time.sleep(600)

    def kill_guard(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)

    def signal_guard(self) -> list[str]:
        os.kill(os.getppid(), signal.SIGTERM)
        return ["still here"]

    def pids(self) -> list[list[int]]:
        return [[os.getppid(), os.getpid()]]

    def limits(self) -> list[Any]:
        import resource

        return [[resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_DATA)[0]]]

    def modules(self) -> list[Any]:
        import copy

        return [str(Path(copy.__file__).parent)]


class Refuses:
    def __init__(self, hello: Any, tell: Any) -> None:
        raise ValueError(f"{hello}\nis no greeting")


class Dies:
    def __init__(self, hello: Any, tell: Any) -> None:
        if isinstance(hello, str):
            os.write(int(sys.argv[1]), bytes.fromhex(hello))
        os._exit(3)


def hoard(mebibytes: int) -> None:
    kept = [bytearray(b"x") * MIB for _ in range(mebibytes)]
    time.sleep(600)
    del kept


def detached(command: list[str]) -> None:
    """Runs a command in a process that nobody can tell from a stranger: two forks, a session of its own, an empty environment."""
    if not os.fork():
        os.setsid()
        if not os.fork():
            null = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(null, number)
            os.closerange(3, 256)
            os.execve(command[0], command, {})
        os._exit(0)
    os.wait()


NOTE = "import os, sys, time; open(sys.argv[1], 'a').write(f'{os.getpid()} '); "
HOPS = """
while True:
    if os.fork():
        os._exit(0)
    if not os.path.exists(sys.argv[1] + ".hops"):
        open(sys.argv[1] + ".hops", "w").close()
"""


def leave(how: str, file: str) -> None:
    """Starts processes that would stay for ten minutes, and waits until they have written their numbers to a file."""
    count = 1
    if how == "session":
        if not os.fork():
            os.setsid()
            _note(file)
    elif how == "detached":
        detached([sys.executable, "-c", f"{NOTE}time.sleep(600)", file])
    elif how == "many":
        count = 60
        for _ in range(count):
            if not os.fork():
                os.setsid()
                _note(file)
    elif how == "hopping":
        detached([sys.executable, "-c", NOTE + HOPS, file])
    deadline = time.monotonic() + 60
    while not Path(file).exists() or len(Path(file).read_text().split()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _note(file: str) -> None:
    with open(file, "a") as numbers:  # noqa: PTH123
        numbers.write(f"{os.getpid()} ")
    while True:
        time.sleep(600)


# jobs of ranks


def rank_leaves(comm: Any, how: str, file: str) -> None:
    if comm.rank == 1:
        leave(how, file)
        os._exit(9)
    comm.barrier()


def rank_hoards(comm: Any, mebibytes: int, below: bool) -> None:
    if comm.rank == 1 and below:
        subprocess.run([sys.executable, "-c", f"import time; x = bytearray(b'x') * ({mebibytes} << 20); time.sleep(600)"], check=True)
    elif comm.rank == 1:
        hoard(mebibytes)
    comm.barrier()


def rank_writes(comm: Any, text: str) -> None:
    if comm.rank == 1:
        os.write(int(sys.argv[1]), bytes.fromhex(text))
        time.sleep(600)
    comm.barrier()


def rank_answers(comm: Any, kind: str) -> Any:
    return {"nan": float("nan"), "no JSON": comm, "nothing": None}[kind]


def environment(comm: Any) -> dict[str, str]:
    comm.barrier()
    return dict(os.environ)
