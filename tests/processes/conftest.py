"""What the tests of processes share."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest


def alive(pid: int) -> bool:
    """Running, and not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def gone() -> Callable[[Iterable[int]], bool]:
    """Whether processes end within a while."""

    def wait(pids: Iterable[int]) -> bool:
        left, deadline = set(pids), time.monotonic() + 30
        assert left
        while left := {pid for pid in left if alive(pid)}:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    return wait
