"""The supervisor's side of a child process: start it, give it jobs, hold it to deadlines and memory, and say what became of it."""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import sysconfig
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from longca.processes.guard import GO, STOP
from longca.processes.host_memory import resident_bytes
from longca.processes.lost import PHASES, SILENT_S, ChildLost, lost, of_exit
from longca.text import format_memory, short

KEPT_OUTPUT = 16 << 10  # bytes: the end of what a child prints
READ_SIZE, LONGEST_LINE = 1 << 20, 16 << 20
LOOK_S = 0.5  # between two looks at a child's memory
EXIT_S = 10.0  # for a child that has closed its channel to end with all it started: its exit code says more than our SIGKILL
BURY_S = 20.0  # for a killed child to be gone: a driver may hold it for ever, and nobody should wait for that
GUARD = str(Path(__file__).with_name("guard.py"))


class Child:
    """One process that serves jobs, under a guard that ends it together with everything it starts.

    `service` is "module:attribute", called in the child with `hello` (see child_main). `deadlines` are seconds by phase: a child begins
    in "start", and each message of it begins its phase's time anew. `memory` bounds the resident bytes of the child and all processes
    below it, `data_limit` what a single one can allocate (0: no bound). What the child sends must convert to `ready_type` and
    `reply_type`. After ChildLost the child is closed.
    """

    def __init__(
        self,
        service: str,
        hello: Any,
        deadlines: Mapping[str, float],
        *,
        memory: int = 0,
        data_limit: int = 0,
        ready_type: Any = Any,
        reply_type: Any = Any,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.deadlines, self.memory = dict(deadlines), memory
        self.ready: Any = None  # what the service told when it was loaded
        self.busy, self.phase = True, "start"
        self.silent: Callable[[str, float], None] | None = None  # called once, with phase and deadline, where no message comes for long
        self.entered: Callable[[str], None] | None = None  # called with each phase that the child begins
        self._told = ""  # the phase of which it was called
        self._types = {"phase": str, "ready": ready_type, "failed": str, "reply": reply_type, "done": int}
        self._jobs, self._output, self._incoming, self._outgoing = 0, b"", b"", b""
        self._error: ChildLost | None = None
        self._spent_s = defaultdict[str, float](float)
        self._since = self._counted = self._next_look = time.monotonic()
        try:
            self._channel, self._guard = _launch(data_limit, environment or {})
        except OSError as error:
            raise self._lost("error", f"could not be started ({error.strerror})") from error
        assert self._guard.stdin is not None
        assert self._guard.stdout is not None
        self._control, self._printed = self._guard.stdin, self._guard.stdout
        self._channel.setblocking(False)
        os.set_blocking(self._printed.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._channel, selectors.EVENT_READ)
        self._selector.register(self._printed, selectors.EVENT_READ)
        self._send({"service": service, "hello": hello})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Readable when `step` has something to do, so that one selector can wait for many children."""
        return self._selector.fileno()

    @property
    def output(self) -> str:
        """The end of what the child has printed since it was given its job."""
        return self._output.decode(errors="replace")

    def take_output(self) -> str:
        """The end of what the child has printed since it was given its job, or since the last call."""
        self._read_output()
        output, self._output = self.output, b""
        return output

    def wait_ready(self) -> Any:
        """Waits until the service is loaded; returns what it told. Time before this call does not count."""
        self._since = self._counted = time.monotonic()
        while self.busy and not self._jobs:
            self.step(LOOK_S)
        return self.ready

    def run(self, job: Any, phase: str = "build") -> Iterator[Any]:
        """Yields the replies to a job, which begins with this phase."""
        self.send(job, phase)
        while self.busy:
            yield from self.step(LOOK_S)

    def send(self, job: Any, phase: str) -> None:
        """Gives the child a job; `step` brings the replies, until it is no longer `busy`."""
        if self._error is not None:
            raise self._error
        assert not self.busy, "a child has one job at a time"
        with suppress(OSError):  # what the job before this one printed is not the last word of this one; one reading empties a pipe
            os.read(self._printed.fileno(), READ_SIZE)
        self._output = b""
        self._jobs, self.busy, self._since, self._told = self._jobs + 1, True, time.monotonic(), ""
        self._count(phase)
        self._send(job)

    def step(self, wait_s: float) -> list[Any]:
        """Waits for messages at most so long; returns the replies among them. Raises ChildLost where the child ends, hangs, takes too
        much memory, or sends what is no message."""
        if self._error is not None:
            raise self._error
        left_s = self._since + self.deadlines[self.phase] - time.monotonic() if self.busy else wait_s
        lines = self._read(max(0.0, min(wait_s, left_s)))
        replies: list[Any] = []
        for line in lines:
            try:
                replies += self._take(*self._parse(line))
            except ChildLost:
                if not replies:
                    raise
                return replies  # and the next call raises it
        if not lines:
            self._check_time()
            self._tell_silence()
        self._check_memory()
        return replies

    def take_seconds(self) -> dict[str, float]:
        """The seconds for which this child was waited for, by phase, since the last call."""
        self._count(self.phase)
        spent, self._spent_s = self._spent_s, defaultdict(float)
        return spent

    def pause(self) -> None:
        """Stops the child and everything below it, until `resume`. That time does not count for its deadlines."""
        self._paused = time.monotonic()
        self._order(STOP)

    def resume(self) -> None:
        now = time.monotonic()
        self._since = min(now, self._since + now - self._paused)
        self._order(GO)

    def _order(self, byte: bytes) -> None:
        with suppress(OSError, ValueError):  # the guard is gone: `step` will tell
            self._control.write(byte)

    def end(self) -> None:
        """Has the guard end the child and everything below it, without waiting for that."""
        self._control.close()

    def close(self, wait_s: float = BURY_S) -> None:
        """Ends the child and everything it started. Harmless when it is gone already."""
        self.end()
        try:
            self._guard.wait(wait_s)
        except subprocess.TimeoutExpired:
            self._guard.kill()
        self._selector.close()
        self._channel.close()
        self._printed.close()

    def _count(self, next_phase: str) -> None:
        now = time.monotonic()
        if self.phase:
            self._spent_s[self.phase] += now - self._counted
        self.phase, self._counted = next_phase, now

    def _send(self, message: Any) -> None:
        self._outgoing += json.dumps(message).encode() + b"\n"
        self._write()

    def _write(self) -> None:
        """Sends what the channel takes now; the rest follows when it takes more."""
        try:
            self._outgoing = self._outgoing[self._channel.send(self._outgoing) :]
        except BlockingIOError:
            pass
        except OSError:  # the child died while idle: reading its answer will tell
            self._outgoing = b""
        self._selector.modify(self._channel, selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0))

    def _read(self, wait_s: float) -> list[bytes]:
        """The whole lines that have come. Reads what was printed too. Raises ChildLost where nothing more can come."""
        ended, silent = self._guard.poll() is not None, True
        for key, events in self._selector.select(0 if ended else wait_s):
            if key.fileobj is self._printed:
                silent = not self._read_output() and silent
                continue
            if events & selectors.EVENT_WRITE:
                self._write()
            if events & selectors.EVENT_READ:
                try:
                    data = self._channel.recv(READ_SIZE)
                except OSError:
                    data = b""
                self._incoming += data
                ended, silent = ended or not data, silent and not data
        *lines, self._incoming = self._incoming.split(b"\n")
        if len(self._incoming) > LONGEST_LINE:
            lines.append(self._incoming[:1])  # no message is that long, and none is a single byte
        if ended and silent and not lines:
            raise self._lose(self._gone())
        return lines

    def _read_output(self) -> bool:
        """Whether something was printed."""
        with suppress(OSError, ValueError):  # nothing there, or closed already
            data = os.read(self._printed.fileno(), READ_SIZE)
            self._output = (self._output + data)[-KEPT_OUTPUT:]
            if not data:
                with suppress(KeyError):  # it was done already
                    self._selector.unregister(self._printed)
            return bool(data)
        return False

    def _gone(self) -> ChildLost:
        """The exception for a child that has closed its channel, most likely because it has ended."""
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(EXIT_S)
        self._read_output()
        code = self._guard.returncode
        return self._lost("error", "closed its channel") if code is None else of_exit(code, self.phase, self.output)

    def _lost(self, status: str, event: str) -> ChildLost:
        return lost(status, event, self.phase, self.output)

    def _lose(self, error: ChildLost) -> ChildLost:
        """Ends the child for this reason."""
        self.close()
        self._error = error
        return error

    def _parse(self, line: bytes) -> tuple[str, Any]:
        """The kind and the value of a message. Raises ChildLost where a line is none, whatever bytes it holds."""
        try:
            ((kind, value),) = json.loads(line).items()
            value = msgspec.convert(value, self._types[kind])
            if self._expects(kind, value):
                return kind, value
        except Exception:  # a job can write anything to the channel: none of it may end the supervisor
            pass
        raise self._lose(self._lost("error", f"sent a malformed message ({short(repr(line[:40]))})"))

    def _expects(self, kind: str, value: Any) -> bool:
        """Whether a message makes sense now."""
        starting = self.busy and not self._jobs
        if kind == "phase":
            return value in self.deadlines
        if kind == "done":
            return not starting and bool(value == self._jobs)
        return starting != (kind == "reply")

    def _take(self, kind: str, value: Any) -> list[Any]:
        """Does what a message says; the reply, if it is one."""
        self._since = time.monotonic()
        if kind == "failed":
            raise self._lose(ChildLost("error", short(value), short(value), self.output))
        if kind == "phase":
            self._count(value)
            if self.entered is not None:
                self.entered(value)
        if kind == "ready":
            self.ready = value
        if kind in ("ready", "done"):
            self.busy = False
            self._count("")
        return [value] if kind == "reply" else []

    def _check_time(self) -> None:
        if self.busy and time.monotonic() - self._since > (allowed_s := self.deadlines[self.phase]):
            event = f"took longer than its {allowed_s:g} s"
            raise self._lose(ChildLost("timeout", f"{PHASES.get(self.phase, self.phase)} {event}", event, self.output))

    def _tell_silence(self) -> None:
        """Tells once that no message comes; a slow start, which says nothing about a job, is told apart."""
        if not self.busy or self.silent is None or self._told == self.phase or time.monotonic() - self._since <= SILENT_S:
            return
        tell, self._told = self.silent, self.phase
        if self.phase != "start":
            self.silent = None
        tell(self.phase, self.deadlines[self.phase])

    def _check_memory(self) -> None:
        if not self.memory or (start := time.monotonic()) < self._next_look:
            return
        used = resident_bytes(self._guard.pid, self.memory)
        self._next_look = time.monotonic() + max(LOOK_S, 10 * (time.monotonic() - start))
        if used > self.memory:
            event = f"took {format_memory(used)} of host memory, {format_memory(self.memory)} are allowed"
            raise self._lose(ChildLost("oom", f"it {event}", event, self.output))


def _launch(data_limit: int, environment: Mapping[str, str]) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Starts a child under its guard; returns this side of its channel, and the guard."""
    ours, theirs = socket.socketpair()
    with theirs:
        number = str(theirs.fileno())
        child = [sys.executable, "-P", "-X", "faulthandler", "-m", "longca.processes.child_main", number]
        try:
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, number, str(data_limit), *child],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(search_path()), "PYTHONUNBUFFERED": "1"},
            )
        except OSError:
            ours.close()
            raise
    return ours, guard


def search_path() -> list[str]:
    """The folders in which this process finds modules, this package's first; without the current folder, which `python -m` adds."""
    without = {"", *sysconfig.get_paths().values()}  # a child has its own standard library
    if getattr(sys.modules["__main__"], "__spec__", None) is not None:
        with suppress(FileNotFoundError):  # the current folder may be gone
            without.add(str(Path.cwd()))
    return list(dict.fromkeys([str(Path(__file__).parents[2]), *(entry for entry in sys.path if entry not in without)]))


def ask(service: str, hello: Any, deadlines: Mapping[str, float], ready_type: Any = Any, **settings: Any) -> Any:
    """What a service tells once it is loaded, by a child that lives only for that. For example: can a user's file be imported?"""
    with Child(service, hello, deadlines, ready_type=ready_type, **settings) as child:
        return child.wait_ready()
