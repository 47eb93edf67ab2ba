"""A pool of ranks never leaves anyone waiting, and nothing of it stays behind."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from longca.errors import BadInput, Unavailable
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed, to_blame, unanswered

Gone = Callable[[Iterable[int]], bool]
MIB = 1 << 20


@pytest.mark.slow
def test_a_rank_that_dies_is_named_with_its_last_words_and_the_next_job_gets_new_ranks() -> None:
    with Pool(3) as pool:
        with pytest.raises(RankFailed, match=r"^rank 1 was killed by SIGKILL; its last words: the disk is full$") as caught:
            pool.run("parallel.jobs:die", {"rank": 1}, 60)
        assert caught.value.kind == "died"
        assert not pool.running
        assert [rank for rank, _ in pool.run("parallel.jobs:greet", {}, 60)] == [0, 1, 2]


def test_a_rank_that_hangs_is_killed_at_the_deadline(gone: Gone, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    with Pool(2) as pool:
        pids = [pid for _, pid in pool.run("parallel.jobs:greet", {}, 60)]
        pool.silent = lambda: told.append("silent")
        assert pool.run("parallel.jobs:greet", {}, 60)
        assert told == []
        monkeypatch.setattr("longca.processes.pool.SILENT_S", 0.2)
        start = time.monotonic()
        with pytest.raises(RankFailed, match=r"rank 1 did not answer within 1.5 s; its last words: waiting for Godot") as caught:
            pool.run("parallel.jobs:hang", {"rank": 1}, 1.5)
        assert time.monotonic() - start < 60  # and not for the 1000 s that it sleeps, however busy this machine is
        assert caught.value.kind == "timeout"
        assert told == ["silent"]  # once, long before the deadline
        assert gone(pids)


def test_what_a_rank_started_ends_with_it(tmp_path: Path, gone: Gone) -> None:
    file = tmp_path / "pids"
    with Pool(2) as pool, pytest.raises(RankFailed, match="rank 1 ended with exit code 9"):
        pool.run("processes.services:rank_leaves", {"how": "detached", "file": str(file)}, 60)
    assert gone(map(int, file.read_text().split()))


@pytest.mark.slow
@pytest.mark.parametrize("below", [False, True])
def test_ranks_have_a_limit_of_memory(below: bool) -> None:
    with Pool(2, memory=1500 * MIB) as pool, pytest.raises(RankFailed) as caught:
        pool.run("processes.services:rank_hoards", {"mebibytes": 2500 if not below else 1450, "below": below}, 120)
    assert (caught.value.rank, caught.value.kind) == (1, "oom")


@pytest.mark.slow
def test_a_malformed_message_of_a_rank_costs_its_job() -> None:
    with Pool(2) as pool:
        for line in (b"{]\n", b'{"reply": {"answer": 1}}\n', b'{"reply": {"type": "failure", "kind": 7, "message": ""}}\n'):
            with pytest.raises(RankFailed, match="rank 1 sent a malformed message") as caught:
                pool.run("processes.services:rank_writes", {"text": line.hex()}, 60)
            assert caught.value.kind == "died"
        assert [rank for rank, _ in pool.run("parallel.jobs:greet", {}, 60)] == [0, 1]


def test_answers_are_what_json_can_hold_and_errors_are_told() -> None:
    with Pool(1) as pool:
        assert pool.run("processes.services:rank_answers", {"kind": "nothing"}, 60) == [None]
        assert math.isnan(pool.run("processes.services:rank_answers", {"kind": "nan"}, 60)[0])
        with pytest.raises(RankFailed, match="rank 0 failed: Object of type TorchComm is not JSON serializable") as caught:
            pool.run("processes.services:rank_answers", {"kind": "no JSON"}, 60)
        assert caught.value.kind == "error"
        words = "rank 0 failed: seven is not prime enough; its last words: ValueError: seven is not prime enough"
        with pytest.raises(RankFailed, match=words):
            pool.run("parallel.jobs:fail", {"rank": 0}, 60)


def test_a_job_that_was_interrupted_leaves_its_ranks_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with Pool(1) as pool:
        ((_, before),) = pool.run("parallel.jobs:greet", {}, 60)
        with monkeypatch.context() as patched:
            patched.setattr(Pool, "_look", interrupt)
            with pytest.raises(KeyboardInterrupt):
                pool.run("parallel.jobs:hang", {"rank": 0}, 60)
        ((_, after),) = pool.run("parallel.jobs:greet", {}, 60)
        assert before != after


@pytest.mark.slow
def test_ranks_end_with_their_parent(gone: Gone) -> None:
    """Even in the middle of a job."""
    parent = (
        "import sys, os, threading; from longca.processes.pool import Pool; pool = Pool(2);"
        "print(*[pid for _, pid in pool.run('parallel.jobs:greet', {}, 60)], flush=True);"
        "threading.Timer(0.3, os._exit, (7,)).start(); pool.run('parallel.jobs:hang', {'rank': 0}, 600)"
    )
    done = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 7, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert gone(pids)


def test_pools_that_cannot_be() -> None:
    with pytest.raises(BadInput, match="at least 1 rank, not 0"):
        Pool(0)
    with pytest.raises(Unavailable, match="1000 NCCL ranks need 1000 GPUs"):
        Pool(1000, "nccl")


def test_who_is_to_blame() -> None:
    assert unanswered(2, range(9), 1.5) == "did not answer within 1.5 s (nor did ranks 0, 1, 3, 4, ...)"

    def of(*kinds: str) -> int:
        return to_blame([RankFailed(rank, kind, "failed", "") for rank, kind in enumerate(kinds)]).rank

    assert of("other", "refused", "other") == 1
    assert of("error", "other", "died") == 2  # what the others saw came from that
    assert of("other", "oom", "error") == 1
