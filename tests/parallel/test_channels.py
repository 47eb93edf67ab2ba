"""Channels of real ranks: gloo here, and NCCL ranks that share a GPU."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from longca.processes.pool import Pool
from longca.processes.shared_gpu import rank_environment
from longca.results.problem import Sharing

RANKS = 4


def test_channels_do_not_wait_for_each_other(ranks: Pool) -> None:
    assert ranks.run("parallel.channel_jobs:other_channels_go_on", {}, 60) == [10, 0, 0, 0]


@pytest.mark.parametrize("seed", [0, 1])
def test_posts_in_one_order_arrive_whatever_each_rank_waits_for_first(ranks: Pool, seed: int) -> None:
    answers = ranks.run("parallel.channel_jobs:random_posts", {"seed": seed, "posts": 120}, 60)
    from random import Random

    common, expected = Random(seed), [0] * RANKS
    for _ in range(120):
        for member in common.sample(range(RANKS), common.randint(2, RANKS)):
            expected[member] += 1
        common.choice(range(4))
        common.choice(range(3))
    assert answers == expected


def test_a_task_beside_passes_on_what_it_received(ranks: Pool) -> None:
    for rank, answer in enumerate(ranks.run("parallel.channel_jobs:relayed_beside", {"turns": 10}, 60)):
        assert answer == [2.0 * (10 * turn + (rank - 2) % RANKS) for turn in range(10)]


def test_another_stream_may_wait_for_a_transfer(ranks: Pool) -> None:
    for rank, answer in enumerate(ranks.run("parallel.channel_jobs:waited_for_elsewhere", {"turns": 30}, 60)):
        assert answer == [float(turn + (rank - 1) % RANKS) for turn in range(30)]


def test_ranks_that_made_different_numbers_of_subgroups_can_make_one_together(ranks: Pool) -> None:
    assert ranks.run("parallel.jobs:subgroups", {}, 60) == [[1, 3, 6], [1, 3, 3, 6], [3, 3, 6, 5], [6, 5]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_replicas_may_use_different_channels(kind: str) -> None:
    """Also with a default group that is bound to its device."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    running = []
    for rank in range(RANKS):
        own = rank_environment(Sharing(ranks=RANKS), None, rank, RANKS) if kind == "cuda" else {}
        command = [sys.executable, str(Path(__file__).with_name("replicas.py")), kind]
        environment = os.environ | common | own | {"RANK": str(rank)}
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment))
    for process in running:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert float(out.split()[-1]) < 2e-5
