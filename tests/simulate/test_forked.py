"""Forked processes end with the process that started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from longca.simulate import forked

SLEEPING = """
import os, sys, time
from pathlib import Path
from longca.simulate import forked

def sleep(number):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(60)

list(forked.map_forked(sleep, range(4)))
"""


@pytest.mark.skipif(forked.cores() < 2 or sys.platform != "linux", reason="one core works alone; elsewhere there is no prctl")
@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_ctrl_c_and_sigterm_leave_no_process(number: int, to_all: bool, tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", SLEEPING, str(tmp_path)], start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        _wait(lambda: len(list(tmp_path.iterdir())) > 1)
        os.killpg(parent.pid, number) if to_all else parent.send_signal(number)
        parent.wait(20)
        _wait(lambda: not any(_runs(int(path.name)) for path in tmp_path.iterdir()))
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def _wait(ready: Callable[[], bool], limit_s: float = 20.0) -> None:
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
