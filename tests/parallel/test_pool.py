"""Real ranks: gloo processes that compute the same, and that never leave anyone waiting."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from longca.errors import BadInput, Unavailable
from longca.parallel import pool as pools
from longca.parallel import registry
from longca.parallel.pool import Pool, RankFailed
from parallel.test_comm import expected_collectives


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(4) as ranks:
        yield ranks


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("mask", ["causal", "share_question", "global_sliding_window"])
def test_methods_on_gloo(pool: Pool, method: str, mask: str) -> None:
    grid = {"usp": "2x2", "loongtrain": "1x4x2"}.get(method, "")
    answers = pool.run("parallel.jobs:worst_error", dict(method=method, mask=mask, seqlen=197, heads=[6, 2], grid=grid), 60)
    assert max(answer["error"] for answer in answers) < 2e-5
    assert all(answer["sent"] > 0 for answer in answers)


def test_another_kernel_on_gloo(pool: Pool) -> None:
    args = dict(method="ring_p2p", mask="causal", seqlen=197, heads=[4, 2], grid="", kernel="sdpa:flash")
    assert max(answer["error"] for answer in pool.run("parallel.jobs:worst_error", args, 60)) < 2e-5


def test_uneven_collectives_on_gloo(pool: Pool) -> None:
    assert pool.run("parallel.jobs:collectives", {}, 60) == [expected_collectives(rank, 4) for rank in range(4)]


def test_a_job_that_is_refused_leaves_the_ranks_alone(pool: Pool) -> None:
    before = pool.run("parallel.jobs:greet", {}, 60)
    with pytest.raises(RankFailed, match="cannot share") as caught:
        pool.run("parallel.jobs:worst_error", dict(method="ulysses", mask="causal", seqlen=97, heads=[2, 2], grid=""), 60)
    assert caught.value.kind == "refused"
    assert pool.run("parallel.jobs:greet", {}, 60) == before


def test_a_rank_that_dies_is_named_with_its_last_words_and_the_next_job_gets_new_ranks() -> None:
    with Pool(3) as pool:
        with pytest.raises(RankFailed, match=r"rank 1 died with exit status -9; its last words: .*the disk is full") as caught:
            pool.run("parallel.jobs:die", {"rank": 1}, 30)
        assert caught.value.kind == "died"
        assert pool.pids == []
        assert [rank for rank, _ in pool.run("parallel.jobs:greet", {}, 60)] == [0, 1, 2]


def test_a_rank_that_hangs_is_killed_at_the_deadline() -> None:
    with Pool(2) as pool:
        pids = [pid for _, pid in pool.run("parallel.jobs:greet", {}, 60)]
        start = time.monotonic()
        with pytest.raises(RankFailed, match=r"rank 1 did not answer within 1.5 s; its last words: waiting for Godot") as caught:
            pool.run("parallel.jobs:hang", {"rank": 1}, 1.5)
        assert time.monotonic() - start < 60  # and not for the 1000 s that it sleeps, however busy this machine is
        assert caught.value.kind == "timeout"
        assert not any(alive(pid) for pid in pids)


def test_nobody_waits_long_for_ranks_that_a_driver_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that no signal ends cannot be had here; one that is never seen to end can."""
    monkeypatch.setattr(pools, "BURY_SECONDS", 0.1)
    waited: list[float | None] = []

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        waited.append(timeout)
        raise subprocess.TimeoutExpired("rank", timeout or 0)

    with Pool(2) as pool:
        pool.run("parallel.jobs:greet", {}, 60)
        processes = [member.process for member in pool._members]
        with monkeypatch.context() as patched:
            patched.setattr(subprocess.Popen, "wait", wait)
            pool.close()
        assert len(waited) == 2
        assert all(timeout is not None and timeout <= 0.1 for timeout in waited)
        assert pool.pids == []
        assert [process.wait(60) for process in processes] == [-9, -9]


def test_ranks_have_the_time_to_start_that_they_are_given() -> None:
    with Pool(1, start_s=0.01) as pool, pytest.raises(RankFailed, match=r"rank 0 did not answer within 0\.01 s"):
        pool.run("parallel.jobs:greet", {}, 60)


def test_an_error_in_a_rank_is_told() -> None:
    with Pool(2) as pool, pytest.raises(RankFailed, match="rank 0 failed: seven is not prime enough") as caught:
        pool.run("parallel.jobs:fail", {"rank": 0}, 30)
    assert caught.value.kind == "error"


def test_ranks_end_with_their_parent() -> None:
    """Even in the middle of a job."""
    parent = (
        "import sys, os, threading; from longca.parallel.pool import Pool; pool = Pool(2);"
        "print(*[pid for _, pid in pool.run('parallel.jobs:greet', {}, 60)], flush=True);"
        "threading.Timer(0.3, os._exit, (7,)).start(); pool.run('parallel.jobs:hang', {'rank': 0}, 600)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_pools_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="at least 1 rank, not 0"):
        Pool(0)
    with pytest.raises(Unavailable, match="1000 NCCL ranks need 1000 GPUs"):
        Pool(1000, "nccl")


def alive(pid: int) -> bool:
    """Running, and not merely waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
