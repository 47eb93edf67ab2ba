"""The differentiable function under torch.distributed, and the example that trains with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from longca import masks, parallel
from longca.errors import BadInput, Refused
from longca.parallel.pool import Pool

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_context_parallel.py"


@pytest.mark.parametrize("method", ["ulysses", "ring_p2p", "magi", "usp"])
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


def test_gradients_through_autograd_are_those_of_one_rank() -> None:
    with Pool(2) as pool:
        answers = pool.run("parallel.jobs:gradients", {}, 60)
    assert all(error < 1e-5 for answer in answers for error in answer["errors"])
    assert all("owns 50 tokens" in answer["refusal"] for answer in answers)


@pytest.mark.parametrize("method", ["usp", pytest.param("magi", marks=pytest.mark.slow)])
def test_the_example_gets_the_same_losses_on_two_ranks(method: str) -> None:
    environment = os.environ | {"METHOD": method, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    alone, shared = ([float(word) for word in line.split()[2:]] for line in done.stdout.splitlines()[:2])
    assert alone == pytest.approx(shared, abs=2e-5)
    assert alone[0] > alone[-1] + 0.5
