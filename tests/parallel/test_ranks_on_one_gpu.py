"""benchmarks/ranks_on_one_gpu.py runs on a CPU: every method is right, and every rank has its times."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from longca.parallel import registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "ranks_on_one_gpu.py"


@pytest.mark.slow
def test_it_runs_on_a_cpu(tmp_path: Path) -> None:
    shape = "--per-rank 40 --ranks 3 --heads 6:3 --head-dim 16 --masks sliding_window_causal --device cpu --out"
    command = [sys.executable, str(SCRIPT), *shape.split(), str(tmp_path / "rows.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "all right"), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    refused = {line.split()[1] for line in done.stdout.splitlines() if "cannot do this" in line}
    assert {row["method"] for row in rows} | refused == set(registry.names())
    for row in rows:
        assert row["ok"]
        assert all(len(row[pass_]) == 3 and min(row[pass_]) > 0 and row["alone"][pass_][0] > 0 for pass_ in ("fwd", "bwd"))
