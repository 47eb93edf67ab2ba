"""One child: its replies, its deadlines, its memory and its end, whatever it does."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from longca.processes import child as supervisor
from longca.processes.child import Child, ask
from longca.processes.lost import ChildLost

Gone = Callable[[Iterable[int]], bool]
DEADLINES = {"start": 120.0, "build": 120.0, "check": 120.0, "time": 120.0}
MIB = 1 << 20


def start(**settings: Any) -> Child:
    settings = {"deadlines": DEADLINES} | settings
    child = Child("processes.services:Actor", "hello", **settings)
    assert child.wait_ready() == "hello"
    return child


def loss(child: Child, *job: Any) -> ChildLost:
    """How a job loses its child."""
    with child, pytest.raises(ChildLost) as caught:
        list(child.run(job))
    with pytest.raises(ChildLost):  # it is not used again
        list(child.run(["echo"]))
    return caught.value


def test_jobs_are_answered_in_order_and_large_ones_too() -> None:
    text = "word " * (1 << 18)  # more than a socket takes at once, in both directions
    with start() as child:
        assert list(child.run(["echo", 1, None, {"a": [2.5]}])) == [1, None, {"a": [2.5]}]
        assert list(child.run(["echo"])) == []
        assert list(child.run(["echo", text])) == [text]
        assert child.phase == ""


def test_a_stopped_child_stands_still_with_all_below_it_until_it_goes_on(tmp_path: Path) -> None:
    files = [tmp_path / "count", tmp_path / "count.below"]

    def counts() -> list[str]:
        return [file.read_text() for file in files]

    with start() as child:
        child.send(["count", str(files[0])], "build")
        while not all(file.exists() for file in files):
            child.step(0.01)
        child.pause()
        time.sleep(0.3)  # until the guard has stopped them
        stopped = counts()
        time.sleep(0.2)
        assert counts() == stopped
        child.resume()
        while counts()[0] == stopped[0] or counts()[1] == stopped[1]:
            time.sleep(0.01)
        child.pause()  # and a stopped one ends like any other


def test_the_time_that_a_child_stands_still_does_not_count_for_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start() as child:
        child.send(["count", str(tmp_path / "count")], "build")
        now, passed_s = time.monotonic, [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: now() + passed_s[0])
        child.pause()
        passed_s[0] += 2 * DEADLINES["build"]
        child.resume()
        child.step(0)
        passed_s[0] += 2 * DEADLINES["build"]
        with pytest.raises(ChildLost, match="took longer"):
            child.step(0)


BUILD = "preparation or the first call"


@pytest.mark.parametrize(
    ("job", "status", "reason"),
    [
        (
            ["segfault"],
            "error",
            rf"^its process was killed by SIGSEGV during {BUILD}; its last words: Fatal Python error: Segmentation fault$",
        ),
        (["exit", 0, "bye"], "error", r"^its process ended with exit code 0 during preparation or the first call; its last words: bye$"),
        (["exit", 1, "CUDA out of memory"], "oom", r"exit code 1 .* its last words: CUDA out of memory$"),
        (
            ["fail"],
            "error",
            rf"^its process ended with exit code 1 during {BUILD}; its last words: ValueError: seven is not prime enough$",
        ),
        (["close_channel"], "error", r"^its process closed its channel during preparation or the first call$"),
        (["kill_guard"], "error", r"^its process was killed by SIGKILL during preparation or the first call$"),
    ],
)
def test_a_child_that_ends_is_told_with_its_last_words(job: list[Any], status: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if job == ["close_channel"]:
        monkeypatch.setattr(supervisor, "EXIT_S", 1.0)  # it never ends: nothing to wait for
    lost = loss(start(), *job)
    assert lost.status == status
    assert re.search(reason, lost.reason), lost.reason


def test_a_child_that_hangs_in_native_code_is_ended_at_its_deadline(gone: Gone) -> None:
    child = start(deadlines=DEADLINES | {"build": 2})
    ((guard, pid),) = child.run(["pids"])
    begin = time.monotonic()
    lost = loss(child, "hang")
    assert (lost.status, lost.reason) == ("timeout", "preparation or the first call took longer than its 2 s")
    assert 2 <= time.monotonic() - begin < 60
    assert gone([guard, pid])


def test_of_a_silent_child_whoever_waits_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "SILENT_S", 0.3)
    told: list[tuple[str, float]] = []
    child = start(deadlines=DEADLINES | {"build": 1})
    child.silent = lambda phase, deadline_s: told.append((phase, deadline_s))
    assert list(child.run(["echo", 1])) == [1]
    assert told == []
    assert loss(child, "hang").status == "timeout"
    assert told == [("build", 1)]


def test_a_job_that_the_child_never_reads_does_not_block_the_supervisor() -> None:
    with start(deadlines=DEADLINES | {"build": 2}) as child:
        child.send(["read_nothing", 600], "build")
        child._outgoing = b'"' + b"x" * (64 * MIB)
        with pytest.raises(ChildLost, match="preparation or the first call took longer than its 2 s"):
            list(iter(lambda: child.step(1), None))


def test_seconds_are_counted_by_phase_and_not_between_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    child = start(deadlines=DEADLINES | {"check": 1})
    assert list(child.run(["phases", ["time", 0.1]])) == []
    assert child.take_seconds().keys() == {"start", "build", "time"}
    now = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: now() + 1000)  # between the jobs
    assert loss(child, "phases", ["time", 0.1], ["check", 600]).reason == "checking took longer than its 1 s"
    spent = child.take_seconds()
    assert spent.keys() == {"build", "check", "time"}
    assert 0.5 < spent["check"] < sum(spent.values()) < 1000


def test_all_output_is_read_and_its_end_kept() -> None:
    with start() as child:
        assert list(child.run(["flood", 1 << 7])) == ["dry"]
        assert set(child.output.strip()) <= {"x", "\n"}
        assert len(child.output) <= supervisor.KEPT_OUTPUT


MALFORMED = {
    "no JSON": b"{]\n",
    "a list": b"[1]\n",
    "another phase": b'{"phase": "lunch"}\n',
    "the end of another job": b'{"done": 7}\n',
    "ready again": b'{"ready": 1}\n',
    "a reply of another type": b'{"reply": "text"}\n',
    "deep": b'{"reply": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "bytes": bytes(range(256)) + b"\n",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_message_costs_the_job_and_nothing_more(name: str) -> None:
    lost = loss(start(reply_type=int), "write", MALFORMED[name].hex())
    assert lost.status == "error"
    assert re.fullmatch(r"its process sent a malformed message \(b.*\) during preparation or the first call", lost.reason)


def test_a_line_without_end_is_malformed() -> None:
    assert "malformed message" in loss(start(), "write_endlessly").reason


def test_replies_before_a_malformed_message_are_kept() -> None:
    with start() as child:
        replies = child.run(["reply_and_write", b"{]\n".hex()])
        assert next(replies) == "good"
        with pytest.raises(ChildLost, match="malformed message"):
            next(replies)


@pytest.mark.parametrize(("how", "dies"), [("session", True), ("detached", False), ("many", True), ("hopping", True)])
def test_what_a_child_started_ends_with_it_wherever_it_hides(how: str, dies: bool, tmp_path: Path, gone: Gone) -> None:
    file = tmp_path / "pids"
    with start() as child:
        ((guard, pid),) = child.run(["pids"])
        # the guard may need longer than EXIT_S to catch a process that hops, and then the exit code is not known yet
        with pytest.raises(ChildLost, match=r"exit code 9|closed its channel") if dies else nullcontext():
            list(child.run(["leave", how, str(file), dies]))
    assert gone([guard, pid, *map(int, file.read_text().split())])
    assert not hopping(str(file))


def hopping(file: str) -> list[str]:
    """Processes that still hop."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes()
        except OSError:
            continue
        if b"os.fork" in command and file.encode() in command:
            found.append(entry.parent.name)
    return found


PARENT = """
import os, sys
from longca.processes.child import Child
child = Child("processes.services:Actor", None, {"start": 120, "build": 600})
child.wait_ready()
print(*list(child.run(["pids"]))[0], flush=True)
for _ in child.run(["leave_and_hang", sys.argv[1]]): pass
"""


def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path, gone: Gone) -> None:
    file = tmp_path / "pids"
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(file)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = list(map(int, parent.stdout.readline().split()))
    deadline = time.monotonic() + 60
    while not file.exists() or not file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.kill()
    parent.communicate()
    assert len(pids) == 2
    assert gone([*pids, int(file.read_text())])


def test_the_guard_outlives_signals_that_a_batch_system_sends_to_all_processes() -> None:
    with start() as child:
        assert list(child.run(["signal_guard"])) == ["still here"]
        time.sleep(0.2)
        assert list(child.run(["echo", 1])) == [1]
        assert child._guard.poll() is None


def test_strangers_are_left_alone() -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger, start() as child:
        child.close()
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.parametrize("job", ["hoard", "hoard_below"])
def test_memory_is_watched_also_where_a_grandchild_takes_it(job: str) -> None:
    lost = loss(start(memory=400 * MIB), job, 600)
    assert lost.status == "oom"
    assert lost.reason.startswith("it took ")
    assert lost.reason.endswith(" of host memory, 400 MiB are allowed")


def test_memory_that_processes_share_counts_once() -> None:
    with start(memory=600 * MIB) as child:
        assert list(child.run(["share", 300, 1.5])) == ["300 MiB"]


def test_allocations_beyond_the_limit_fail_and_no_core_is_written() -> None:
    with start(data_limit=700 * MIB) as child:
        assert list(child.run(["limits"])) == [[0, 700 * MIB]]
        assert "MemoryError" in loss(child, "hoard", 1000).reason


def test_nobody_waits_long_for_what_a_driver_holds() -> None:
    """A process that no signal ends cannot be had here; one whose guard does not notice can."""
    child = start()
    child._guard.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    child.close(0.1)
    assert time.monotonic() - begin < 30
    assert child._guard.wait(60) == -signal.SIGKILL


def test_a_child_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "copy.py").write_text("raise RuntimeError('the wrong copy')\n")
    monkeypatch.chdir(tmp_path)
    with start() as child:
        assert list(child.run(["modules"])) != [str(tmp_path)]


def test_a_service_that_fails_or_ends_its_process_is_told() -> None:
    with pytest.raises(ChildLost, match=r"^ValueError: Hi is no greeting$"):
        ask("processes.services:Refuses", "Hi", DEADLINES)
    with pytest.raises(ChildLost, match=r"^its process ended with exit code 3 during starting$"):
        ask("processes.services:Dies", None, DEADLINES)
    with pytest.raises(ChildLost, match=r"^its process sent a malformed message \(b'.*'\) during starting$"):
        ask("processes.services:Dies", b'{"ready": 7}\n'.hex(), DEADLINES, ready_type=list[str])
    for early in (b'{"done": 0}\n', b'{"reply": 1}\n'):
        with pytest.raises(ChildLost, match=r"^its process sent a malformed message"):
            ask("processes.services:Dies", early.hex(), DEADLINES)
    with pytest.raises(ChildLost, match="No module named 'nowhere'"):
        ask("nowhere:Service", None, DEADLINES)
    with pytest.raises(ChildLost, match=r"^starting took longer than its 0\.01 s$"):
        ask("processes.services:Actor", None, DEADLINES | {"start": 0.01})
    assert ask("processes.services:Actor", [1, 2], DEADLINES, ready_type=list[int]) == [1, 2]


def test_a_process_that_cannot_be_started_is_a_lost_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor.sys, "executable", "/nowhere/python")
    with pytest.raises(ChildLost, match="could not be started"):
        Child("processes.services:Actor", None, DEADLINES)
