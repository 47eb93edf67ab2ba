"""The parent's side of a worker: start it, give it jobs, hold it to its deadlines, and say what became of it."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from longca.bench.host_memory import free_bytes
from longca.bench.outcome import PHASES, of_exit
from longca.bench.suite import Limits
from longca.text import format_memory, parse_size

Message = dict[str, Any]
KEPT_OUTPUT = 16 << 10  # of what a worker prints, its last bytes
READ_SIZE, LONGEST_LINE = 1 << 20, 16 << 20
LOOK_S = 0.5  # between two looks at a worker's memory
EXIT_S, BURY_S = 2.0, 20.0
MARK = "LONGCA_WORKER"  # a variable that all descendants of a worker inherit, wherever they hide
SWEEPS = 5  # looks for descendants: each finds what those before it had started meanwhile


class Gone(Exception):
    """The worker is no more: a status and a reason."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


def memory_limit(limits: Limits) -> int:
    """Bytes of host memory for one worker: as asked, or most of what is free."""
    if limits.memory:
        return parse_size(limits.memory)
    return free_bytes() * 9 // 10


class Worker:
    """One process in its own session, hence its own group, which is killed as a whole; what left the group is found by its mark."""

    def __init__(self, limits: Limits, device: str, device_model: str, plugin: str | None = None) -> None:
        self.limits, self.memory = limits, memory_limit(limits)
        self.versions: dict[str, dict[str, str]] = {}  # of the kernels of its plugin, by label; known when it is ready
        self._ready = False
        self._phase, self._output, self._pending = "start", b"", b""
        self._spent_s, self._counted = defaultdict[str, float](float), time.monotonic()
        self._mark = f"{MARK}={uuid4().hex}"
        self._seconds = {"start": limits.start_s, "build": limits.build_s, "reference": limits.build_s}
        self._seconds |= {"check": limits.check_s, "time": limits.time_s}
        commands_in, self._commands = os.pipe()
        self._replies, replies_out = os.pipe()
        arguments = [
            sys.executable,
            "-P",  # what lies in the current folder is not to be imported
            "-X",
            "faulthandler",
            "-m",
            "longca.bench.worker",
            str(commands_in),
            str(replies_out),
            str(os.getpid()),
        ]
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(commands_in, replies_out),
            start_new_session=True,
            env=_environment() | dict([self._mark.split("=")]),
        )
        os.close(commands_in)
        os.close(replies_out)
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._replies, selectors.EVENT_READ, "replies")
        self._selector.register(self._process.stdout, selectors.EVENT_READ, "output")
        # a CUDA context maps more than any limit on a CPU allows; there only the resident size is watched
        limited = self.memory if device == "cpu" else 0
        self._send({"memory": limited, "plugin": plugin, "device_model": device_model, "device": device})

    def wait_ready(self) -> None:
        """Until it has loaded torch and its plugin; raises Gone where that fails."""
        self._counted = time.monotonic()
        for message in () if self._ready else self._messages():
            if "failed" in message:
                self.kill()
                raise Gone("error", message["failed"])
            if "ready" in message:
                self.versions, self._ready = message["ready"], True
                return

    def run(self, job: Message) -> Iterator[Message]:
        """The worker's answers to a job, the last one with `done`; raises Gone where it dies, hangs or takes too much memory."""
        self._count("build")
        self._forget_output()
        self._send(job)
        for message in self._messages():
            yield message
            if "done" in message:
                return

    def take_seconds(self) -> dict[str, float]:
        """How long it was waited for, by phase, since this was last asked; how it ended does not matter."""
        self._count(self._phase)
        spent, self._spent_s = self._spent_s, defaultdict(float)
        return spent

    def _count(self, next_phase: str) -> None:
        now = time.monotonic()
        self._spent_s[self._phase] += now - self._counted
        self._phase, self._counted = next_phase, now

    def _forget_output(self) -> None:
        """What the job before this one printed must not be taken for this one's last words. One reading empties the pipe."""
        assert self._process.stdout is not None
        if self._process.stdout in [ready.fileobj for ready, _ in self._selector.select(0)]:
            os.read(self._process.stdout.fileno(), READ_SIZE)
        self._output = b""

    def _send(self, message: Message) -> None:
        data = json.dumps(message).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._commands, data) :]
        except BrokenPipeError:
            pass  # it died while idle: reading its answer will say so

    def _messages(self) -> Iterator[Message]:
        """Answers as they come; every one of them gives the worker until the next deadline."""
        since = time.monotonic()
        while True:
            left_s = since + self._seconds[self._phase] - time.monotonic()
            for line in self._read(min(LOOK_S, max(0.0, left_s))):
                message, since = self._parse(line), time.monotonic()
                if "phase" in message:
                    self._count(message["phase"])
                else:
                    yield message
            if time.monotonic() - since > self._seconds[self._phase]:
                self.kill()
                raise Gone("timeout", f"{PHASES[self._phase]} took longer than its {self._seconds[self._phase]:g} s")
            if (used := self._resident()) > self.memory:
                self.kill()
                raise Gone("oom", f"it took {format_memory(used)} of host memory, {format_memory(self.memory)} are allowed")

    def _parse(self, line: bytes) -> Message:
        with suppress(ValueError, TypeError):
            message: Message = {**json.loads(line)}
            if message.get("phase", self._phase) in self._seconds:
                return message
        self.kill()
        raise Gone("error", f"something wrote to the worker's own pipe during {PHASES[self._phase]}")

    def _read(self, wait_s: float) -> list[bytes]:
        """Whole lines of answers that have come; drains what was printed beside them. Raises Gone when there is nothing more to come."""
        ended = self._process.poll() is not None
        silent = True
        for ready, _ in self._selector.select(0 if ended else wait_s):
            data = os.read(ready.fd, READ_SIZE)
            silent = silent and not data
            if ready.data == "output":
                self._output = (self._output + data)[-KEPT_OUTPUT:]
            else:
                self._pending += data
                ended = ended or not data
            if not data:
                self._selector.unregister(ready.fileobj)
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > LONGEST_LINE:
            lines.append(self._pending)  # no answer is that long: it will not parse
        if ended and silent and not lines:
            with suppress(subprocess.TimeoutExpired):  # its own exit code says more than our SIGKILL
                self._process.wait(EXIT_S)
            self.kill()
            raise Gone(*of_exit(self._process.returncode or 0, self._phase, self._output.decode(errors="replace")))
        return lines

    def _resident(self) -> int:
        try:
            pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        except (OSError, ValueError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it with everything it started. Harmless when it is gone already."""
        if self._commands < 0:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # a driver may hold it for ever; nobody should wait for that
            self._process.wait(BURY_S)
        for _ in range(SWEEPS if hasattr(os, "pidfd_open") else 0):  # a Python for older kernels has it not
            if not _kill_marked(self._mark):
                break
        self._selector.close()
        os.close(self._commands)
        os.close(self._replies)
        self._commands = -1
        assert self._process.stdout is not None
        self._process.stdout.close()


def _environment() -> dict[str, str]:
    """The worker finds this very package, and its output is not held back."""
    home = str(Path(__file__).parents[2])
    paths = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}


def _kill_marked(mark: str) -> bool:
    """End all processes that were started with this in their environment; whether there were any."""
    found = False
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is somebody else's
            handle = os.pidfd_open(int(entry.name))  # of this very process, even if its number is given to another one now
            try:
                if mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    found = True
            finally:
                os.close(handle)
    return found
