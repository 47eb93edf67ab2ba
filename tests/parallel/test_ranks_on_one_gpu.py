"""benchmarks/ranks_on_one_gpu.py runs on a CPU: every method is right, and every rank has its times."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from longca.parallel import registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ranks_on_one_gpu.py"


@pytest.mark.slow
def test_it_runs_on_a_cpu(tmp_path: Path) -> None:
    shape = shlex.split("--per-rank 40 --ranks 3 --heads 6:3 --head-dim 16 --masks sliding_window_causal --device cpu")
    command = [sys.executable, str(SCRIPT), *shape, "--out", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all right"), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    refused = {line.split()[1] for line in done.stdout.splitlines() if "cannot do this" in line}
    assert {row["method"] for row in rows} | refused == set(registry.names())
    for row in rows:
        assert row["ok"]
        for pass_ in ("fwd", "bwd"):
            assert len(row[pass_]) == 3
            assert min(row[pass_]) > 0
            assert row["alone"][pass_][0] > 0
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"mask": "sliding_win')  # as a kill leaves it
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "all right"), again.stderr
    assert [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()] == rows  # nothing was measured again
    other = subprocess.run([*command, "--seed", "7", "--methods", "ulysses"], capture_output=True, text=True, check=False)
    assert other.returncode == 0, other.stderr
    *same, last = (json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines())
    assert (same, last["method"], last["seed"]) == (rows, "ulysses", 7)
