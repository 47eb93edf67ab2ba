"""The guard of one child process: it starts the child, and ends it with everything that the child started.

`python -I -S guard.py CHANNEL MEMORY PROGRAM ARGUMENT...` runs the program with the file CHANNEL and at most MEMORY bytes of data (0: no
limit). The guard's stdin is a pipe of the supervisor: when it closes, because the supervisor wants so or is dead, or when the child ends,
the guard kills all its descendants, and ends with the child's exit code or signal. A byte on it stops them all, or lets them go on.

The guard adopts orphans (Linux: PR_SET_CHILD_SUBREAPER), so a process that detaches itself stays below it. Elsewhere only the child's
process group is ended. A script of the standard library alone, because it must start fast.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

CONTROL = 0  # stdin
STOP, GO = b"s", b"g"  # bytes on it
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.05  # between two rounds of killing


def main(channel: int, memory: int, command: list[str]) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core file of a GPU process takes minutes and gigabytes
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # a batch system signals all processes of a job
        signal.signal(number, lambda *_: None)
    child = start(command, memory)
    os.close(channel)
    status = None
    while status is None:
        ready, _, _ = select.select([CONTROL, wake], [], [])
        status = reap().get(child)
        if CONTROL in ready and not obey():
            break
        if wake in ready:
            os.read(wake, 1 << 10)
    status = end_all(child, status)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # SIGKILL needs none
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def prctl(option: int, value: int) -> None:
    """Where there is no prctl, nothing happens."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


def start(command: list[str], memory: int) -> int:
    guard = os.getpid()
    if child := os.fork():
        return child
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # if something kills the guard
        if os.getppid() != guard:
            os._exit(1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), CONTROL)
        if memory:  # allocations beyond it fail, so that a greedy job gets an error and not the whole machine
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
        os.execv(command[0], command)
    finally:
        os._exit(127)


def reap() -> dict[int, int]:
    """The status of each child that has ended, adopted ones too, by process id. Raises ChildProcessError where no child is left."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if ended:
                return ended
            raise
        if not pid:
            return ended
        ended[pid] = status


def end_all(child: int, status: int | None) -> int:
    """Kills until no descendant is left; returns the status of the child."""
    pause_s = SHORTEST_PAUSE_S
    if status is None or not os.path.isdir("/proc"):  # noqa: PTH112  # pathlib takes as long to import as all the rest
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            signal_descendants(os.getpid(), signal.SIGKILL)
            status = reap().get(child, status)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return signal.SIGKILL if status is None else status


def obey() -> bool:
    """Does what the last byte of the supervisor says; False where its end of the pipe is closed."""
    said = os.read(CONTROL, 1 << 10)
    if said:
        signal_descendants(os.getpid(), signal.SIGSTOP if said[-1:] == STOP else signal.SIGCONT)
    return bool(said)


def signal_descendants(top: int, number: signal.Signals) -> None:
    """Signals each process below one as soon as it is seen: a process that forks and exits all the time lives only for a moment."""
    family = {top}
    for pid, parent in parents():
        if parent in family:
            family.add(pid)
            with suppress(OSError):  # it has ended meanwhile
                send(number, pid, family)


def send(number: signal.Signals, pid: int, family: set[int]) -> None:
    if not hasattr(os, "pidfd_open"):
        os.kill(pid, number)
        return
    handle = os.pidfd_open(pid)
    try:
        if parent_of(pid) in family:  # and not another process that got this number since
            signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


def parents() -> Iterator[tuple[int, int]]:
    """Yields all processes of the machine with their parents, in the order of their numbers. Nothing where there is no /proc."""
    with suppress(FileNotFoundError):
        for name in os.listdir("/proc"):  # noqa: PTH208
            if name.isdecimal() and (parent := parent_of(int(name))):
                yield int(name), parent


def parent_of(pid: int) -> int:
    """The process id of a process's parent; 0 where it has ended or has none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
