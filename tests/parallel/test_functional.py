"""The differentiable function under torch.distributed, and the example that trains with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from longca import masks, parallel
from longca.errors import BadInput, Refused
from longca.parallel.functional import neighbours
from longca.processes.pool import Pool

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_context_parallel.py"


@pytest.mark.parametrize("method", ["ulysses", "ring_p2p", "magi", "usp", "hybrid_dcp", "halo"])
def test_shard_and_unshard_are_inverse(method: str) -> None:
    mask = masks.causal_document(101, documents=[50, 1, 50])
    owned = parallel.shards(mask, 8, method=method, ranks=4)
    whole = torch.arange(101 * 2).view(101, 2)
    pieces = [parallel.shard(whole, owned, rank) for rank in range(4)]
    assert torch.equal(parallel.unshard(pieces, owned), whole)
    for rank in (7, -1):
        with pytest.raises(BadInput, match=f"there is no rank {rank}: these shards are of 4 ranks"):
            parallel.shard(whole, owned, rank)
    assert np.array_equal(pieces[1][:, 0] // 2, np.concatenate([np.arange(*pair) for pair in owned[1]]))


def test_sharding_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(Refused, match="query heads"):
        parallel.shards(masks.causal(64), 2, method="ulysses", ranks=4)


def test_neighbours_that_share_a_node() -> None:
    for members, ranks_per_node, n in (
        (range(16), 8, 8),
        (range(4, 12), 8, 4),  # half of one node and half of the next
        (range(12), 8, 8),  # the last node has fewer
        (range(4, 16), 8, 0),  # the first node has fewer
        (range(8, 16), 8, 8),
        (range(0, 64, 8), 8, 1),
        (range(0, 16, 2), 8, 4),
        ((0, 8, 1, 9), 8, 0),
        ((0, 8, 16, 1), 8, 0),
        ((5,), 8, 1),
    ):
        assert neighbours(tuple(members), ranks_per_node) == n


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """A group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'first'}", rank=0, world_size=1)
    yield tmp_path
    dist.destroy_process_group()


def test_ranks_may_be_initialised_anew(alone: Path) -> None:
    mask, q = masks.causal(16), torch.randn(16, 4, 8)
    first = parallel.attention(q, q, q, mask)
    dist.destroy_process_group()
    with pytest.raises(BadInput, match=r"call torch\.distributed\.init_process_group first"):
        parallel.attention(q, q, q, mask)
    dist.init_process_group("gloo", init_method=f"file://{alone / 'second'}", rank=0, world_size=1)
    assert torch.equal(parallel.attention(q, q, q, mask), first)
    assert torch.equal(parallel.gather(first, parallel.shards(mask, 4, ranks=1)), first)


@pytest.mark.parametrize("method", ["ulysses", "magi"])
@pytest.mark.usefixtures("alone")
def test_tensors_that_do_not_fit_are_one_sentence(method: str) -> None:
    q = torch.randn(16, 4, 8)
    wrong: list[tuple[Any, str]] = [
        ((q, q, q.bfloat16()), "share one dtype of"),
        ((q.int(),) * 3, "share one dtype of"),
        ((q, q[:, :2], q), "attention takes q"),
        ((q, q[..., :4], q), "attention takes q"),
        ((q[0],) * 3, "attention takes q"),
        ((q, q.to("meta"), q), "must lie on one device"),
        ((q.numpy(), q, q), r"q must be a torch\.Tensor"),
        ((q[:8],) * 3, "this rank owns 16 tokens under"),
    ]
    for tensors, sentence in wrong:
        with pytest.raises(BadInput, match=sentence):
            parallel.attention(*tensors, masks.causal(16), method=method)
    with pytest.raises(BadInput, match=r"the mask must be one of longca\.masks"):
        parallel.attention(q, q, q, "causal", method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize(("heads", "ranks"), [(4, 0), (4, -1), (0, 2), (4, "4"), ("64:8", 4)])
def test_numbers_that_are_none_are_refused(heads: Any, ranks: Any) -> None:
    with pytest.raises(BadInput, match=r"must be a whole number of 1 or more"):
        parallel.shards(masks.causal(16), heads, ranks=ranks)
    assert len(parallel.shards(masks.causal(16), 4, ranks=np.int64(2))) == 2  # type: ignore[arg-type]


def test_pieces_of_another_length_are_refused() -> None:
    owned = parallel.shards(masks.causal(16), 4, ranks=2)
    with pytest.raises(BadInput, match="these shards are of 16 tokens, and the tensor has 100"):
        parallel.shard(torch.randn(100), owned, 0)
    for pieces in ([torch.randn(3), torch.randn(13)], [torch.randn(8)]):
        with pytest.raises(BadInput, match=r"the ranks own \[8, 8\] tokens"):
            parallel.unshard(pieces, owned)


def test_gradients_through_autograd_are_those_of_one_rank(pair: Pool) -> None:
    for method, tokens in (("ring_p2p", [50, 50]), ("hybrid_dcp", [55, 45]), ("mesh", [50, 50])):
        answers = pair.run("parallel.jobs:gradients", {"method": method}, 60)
        assert all(error < 1e-5 for answer in answers for error in answer["errors"])
        assert [answer["tokens"] for answer in answers] == tokens
        assert all(f"owns {answer['tokens']} tokens" in answer["refusal"] for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["usp", "magi"])
def test_the_example_gets_the_same_losses_on_two_ranks(method: str) -> None:
    environment = os.environ | {"METHOD": method, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    alone, shared = ([float(word) for word in line.split()[2:]] for line in done.stdout.splitlines()[:2])
    assert alone == pytest.approx(shared, abs=2e-5)
    assert alone[0] > alone[-1] + 0.5
