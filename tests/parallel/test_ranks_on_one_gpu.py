"""benchmarks/ranks_on_one_gpu.py runs on a CPU: every method is right, and every rank has its times."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from longca.parallel import registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ranks_on_one_gpu.py"


@pytest.mark.slow
def test_it_runs_on_a_cpu(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"

    def run(*more: str) -> tuple[list[str], list[dict[str, Any]]]:
        shape = shlex.split("--per-rank 40 --ranks 3 --heads 6:3 --head-dim 16 --masks sliding_window_causal --device cpu")
        done = subprocess.run([sys.executable, str(SCRIPT), *shape, "--out", str(file), *more], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all right"), done.stderr
        return done.stdout.splitlines(), [json.loads(line) for line in file.read_text().splitlines()]

    lines, rows = run()
    refused = {line.split()[1] for line in lines if "cannot do this" in line}
    assert {row["method"] for row in rows} | refused == set(registry.names())
    for row in rows:
        assert row["ok"]
        for pass_ in ("fwd", "bwd"):
            assert len(row[pass_]) == 3
            assert min(row[pass_]) > 0
            assert row["alone"][pass_][0] > 0
    with file.open("a") as torn:
        torn.write('{"mask": "sliding_win')  # as a kill leaves it
    *same, last = run("--seed", "7", "--methods", "ulysses")[1]
    assert (same, last["method"], last["seed"]) == (rows, "ulysses", 7)  # what was there is not measured again
