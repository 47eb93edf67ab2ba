"""The examples for the Trainer of transformers, torchtitan and Megatron-Core on four ranks, where installed: `make frameworks`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("package", "example"), [("accelerate", "huggingface.py"), ("torchtitan", "torchtitan_llama.py"), ("megatron", "megatron_core.py")]
)
def test_four_ranks_have_the_losses_of_one(package: str, example: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = "lo"  # ranks of one machine need no more than its own address
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", EXAMPLES / example]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("1 rank", "4 rank"))]
    one, four = ([float(word) for word in line[2:]] for line in lines)
    assert four == pytest.approx(one, abs=1e-5)
    assert one[-1] < one[0] - 0.5
