"""Running `longca run` as its own process, with tiny shapes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PLUGINS = Path(__file__).parent / "plugins"
SMALL = ["--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--head-dim", "8", "--dtype", "fp32", "--budget", "0.01"]
SMALL += ["--device", "cpu"]

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def plugins() -> Path:
    return PLUGINS


@pytest.fixture(scope="session")
def small() -> list[str]:
    """The flags of `longca run` for a small shape; later flags win over them."""
    return SMALL


@pytest.fixture(scope="session")
def start_run() -> Start:
    """Starts `longca run` with a small shape; later arguments win over it."""

    def start(*arguments: object, **environment: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "longca", "run", *SMALL, *map(str, arguments)]
        settings = os.environ | {name: str(value) for name, value in environment.items()}
        return subprocess.Popen(command, env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    return start


@pytest.fixture
def run_here(in_process: None) -> Callable[..., int]:
    """Runs `longca run` with a small shape, workers included, in this process, and returns its exit code: for tests of what is in the
    journal, not of how processes end."""
    from longca.cli import main

    return lambda *arguments: main(["run", *SMALL, *map(str, arguments)])


def workers_of(folder: Path) -> list[int]:
    """Process ids of workers that were started with this folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                mine = f"LONGCA_TEST={folder}".encode() in (entry / "environ").read_bytes()
                worker = b"longca.processes.child_main" in (entry / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile, or is not ours
                continue
            if mine and worker:
                found.append(int(entry.name))
    return found


@pytest.fixture
def living_workers() -> Callable[[Path], list[int]]:
    return workers_of
