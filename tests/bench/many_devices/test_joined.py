"""Jobs that torchrun or srun started: the first rank leads, and no rank is left waiting when another one goes."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.many_devices.conftest import QUICK, SHAPE, records_of
from longca.results.record import Status

ON_ONE_GPU = [*SHAPE[:-1], "cuda", "--ranks-per-gpu", "2", "--kernels", "torch:chunked", "--budget", "0.02"]
PATIENCE = 100  # seconds, of which none of these tests needs many


class Started:
    """The same command in some of two processes, as torchrun starts them."""

    def __init__(self, folder: Path, asked: list[str], ranks: tuple[int, ...] = (0, 1)) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        shared |= {"GLOO_SOCKET_IFNAME": "lo"}
        self.words = [folder / f"rank{rank}.words" for rank in ranks]
        self.ranks = []
        for rank, words in zip(ranks, self.words, strict=True):
            with words.open("w") as said:
                self.ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "longca", "run", *asked],
                        env={**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                        stdout=said,
                        stderr=said,
                    )
                )

    def wait_for(self, rank: int, words: str) -> None:
        end = time.monotonic() + PATIENCE
        while words not in self.words[rank].read_text():
            assert time.monotonic() < end
            time.sleep(0.05)

    def ended(self) -> list[tuple[int, str]]:
        """(exit code, what it said) of each."""
        try:
            codes = [process.wait(PATIENCE) for process in self.ranks]
        finally:
            for process in self.ranks:
                process.kill()
        return list(zip(codes, (words.read_text() for words in self.words), strict=True))


@pytest.mark.slow
def test_under_torchrun_the_command_joins_the_job_and_resumes_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):  # the second time nothing is left to do, and the other rank must be told so
        ended = Started(tmp_path, ["--methods", "ring_p2p", *QUICK, "--passes", "fwd", "--out", str(out)]).ended()
        assert [code for code, _ in ended] == [0, 0], ended
    (record,) = records_of(out).values()
    assert (record.status, record.problem.ranks) == (Status.OK, 2), record.reason


@pytest.mark.slow
def test_a_signal_in_the_middle_of_a_job_ends_all_ranks(tmp_path: Path, plugins: Path) -> None:
    fragile = ["--plugin", str(plugins / "fragile_methods.py"), "--methods", "hangs"]
    started = Started(tmp_path, [*fragile, *QUICK, "--passes", "fwd", "--deadline", "900", "--out", str(tmp_path / "out")])
    started.wait_for(1, "waiting for Godot")
    started.ranks[0].send_signal(signal.SIGTERM)
    (first, said), (second, words) = started.ended()
    assert (first, second) == (130, 1), (said, words)
    assert "stopped with 1 cell left; to continue: longca run" in said
    assert "longca: the first rank is gone, so this one ends too" in words


@pytest.mark.slow
@pytest.mark.parametrize("quick", [QUICK, pytest.param(ON_ONE_GPU, marks=pytest.mark.gpu)], ids=["gloo", "nccl"])
def test_a_cell_that_fails_on_one_rank_costs_that_cell_alone(tmp_path: Path, plugins: Path, quick: list[str]) -> None:
    """The other rank waits for it in a transfer; both make new communicators for the next cell. Where one rank refuses, none has sent
    anything yet."""
    fragile = ["--plugin", str(plugins / "fragile_methods.py"), "--methods", "fails_backward,refuses_alone,plain_ring"]
    ended = Started(tmp_path, [*fragile, *quick, "--out", str(tmp_path / "out")]).ended()
    assert [code for code, _ in ended] == [0, 0], ended
    found = records_of(tmp_path / "out")
    assert {name: record.status for name, record in found.items()} == {
        ("fails_backward", "fwd"): Status.OK,
        ("fails_backward", "bwd"): Status.ERROR,
        ("refuses_alone", "fwd"): Status.UNSUPPORTED,
        ("refuses_alone", "bwd"): Status.UNSUPPORTED,
        ("plain_ring", "fwd"): Status.OK,
        ("plain_ring", "bwd"): Status.OK,
    }
    assert "rank 1 failed: seven is not prime enough" in found["fails_backward", "bwd"].reason
    assert found["refuses_alone", "fwd"].reason == "the kernel of rank 1 does not take this"


@pytest.mark.slow
def test_a_cell_that_breaks_the_job_is_recorded_with_its_reason_and_the_same_command_goes_on(tmp_path: Path, plugins: Path) -> None:
    fragile = ["--plugin", str(plugins / "fragile_methods.py"), "--methods", "hangs,plain_ring", "--deadline", "5", "--passes", "fwd"]
    asked = [*fragile, *QUICK, "--out", str(tmp_path / "out")]
    (first, said), (second, words) = Started(tmp_path, asked).ended()
    assert (first, second) == (2, 1), (said, words)
    assert "the ranks of this job no longer answer; start it again" in said
    found = records_of(tmp_path / "out")
    assert {name: record.status for name, record in found.items()} == {("hangs", "fwd"): Status.TIMEOUT}
    ended = Started(tmp_path, asked).ended()
    assert [code for code, _ in ended] == [0, 0], ended
    assert records_of(tmp_path / "out")["plain_ring", "fwd"].status == Status.OK


@pytest.mark.slow
def test_where_the_first_rank_refuses_the_others_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    ended = Started(tmp_path, ["--methods", "ring_p2p", *QUICK, "--out", str(tmp_path / "file" / "out")]).ended()
    assert [code for code, _ in ended] == [2, 1], ended
    assert "longca: the first rank is gone" in ended[1][1]


@pytest.mark.slow
def test_where_the_first_rank_never_comes_the_others_say_so(tmp_path: Path) -> None:
    (tmp_path / "hasty.toml").write_text('level = "cp"\n[limits]\nstart_s = 2\n')
    asked = [str(tmp_path / "hasty.toml"), "--methods", "ring_p2p", *QUICK, "--out", str(tmp_path / "out")]
    ((code, words),) = Started(tmp_path, asked, ranks=(1,)).ended()
    assert code == 2, words
    assert "longca: the 2 ranks of this job did not meet at 127.0.0.1:" in words
