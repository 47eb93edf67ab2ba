"""The examples for torchtitan and Megatron-Core, where these are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(("package", "example"), [("torchtitan", "torchtitan_attention.py"), ("megatron", "megatron_core.py")])
def test_it_gives_what_the_library_gives(package: str, example: str) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example)], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "differ by" in done.stdout
