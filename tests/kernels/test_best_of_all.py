"""benchmarks/best_of_all.py runs on a CPU, compares every kernel, and ends with its verdict."""

import json
import re
import runpy
import subprocess
import sys
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from longca.kernels import registry

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "best_of_all.py"


@pytest.fixture
def script() -> Any:
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def test_times_are_compared_in_turns(script: Any) -> None:
    """The device becomes slower, so that times of one kernel differ more than those of two kernels in one turn."""
    best, other = (script.Runner(label, "", None, None, {"fwd"}, 0.0) for label in ("best", "fa3"))
    best.samples, other.samples = [1.0, 1.1, 1.2, 1.3], [0.97, 1.067, 1.164, 1.261]
    row = script.verdict([best, other])
    assert row["ratio"] == pytest.approx(0.97)
    assert row["spread"] == pytest.approx(0.0)
    assert not row["reached"]
    other.samples = [0.99, 1.09, 1.19, 1.29]
    assert script.verdict([best, other])["reached"]
    best.samples, other.samples = [1.0, 2.0, 3.0], [0.97, 2.2, 2.7]  # the median of the ratios, not the ratio of the medians: 1.1
    assert script.verdict([best, other])["ratio"] == pytest.approx(0.97)


def test_records_alone_are_judged_by_the_same_samples(script: Any) -> None:
    times = {"fa3": 1.0, "fa4:native": 1.01, "flex": 3.0}
    rows = [{"fastest_ms": 1.0, "all_ms": times, "by_records": label} for label in ("fa3", "fa4:native", "flex", "not timed")]
    assert script.without_autotuning([*rows, {"fastest_ms": 1.0}]) == "records alone: 2 of 4 rows reach 0.98, the worst 0.000"


@pytest.mark.slow
def test_it_runs_on_a_cpu(tmp_path: Path) -> None:
    rows, flags = tmp_path / "rows.jsonl", ["--device", "cpu", "--masks", "causal,share_question", "--seqlens", "96", "--fresh"]
    shape = ["--heads", "2:1", "--head-dim", "16", "--warmup", "0.01", "--budget", "0.01"]
    command = [sys.executable, str(SCRIPT), *flags, *shape, "--out", str(rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    written = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [(row["mask"], row["pass"]) for row in written] == [*product(("causal", "share_question"), ("fwd", "bwd"))]
    labels = set(registry.available_labels("cpu"))
    for row in written:
        assert set(row["all_ms"]) - {"best"} <= labels
        assert {"best", "sdpa:flash", "sdpa:math", "torch:plain", "torch:chunked"} <= set(row["all_ms"])
        assert row["fastest"] == min(labels & set(row["all_ms"]), key=row["all_ms"].get)
        assert row["by_records"] in labels
    *_, worst, last = done.stdout.splitlines()
    assert float(re.match(r"worst: (\d\.\d+) ", worst)[1]) == round(min(row["ratio"] for row in written), 3)  # type: ignore[index]
    assert last == f"never under .98: {'true' if all(row['reached'] for row in written) else 'false'}"
    assert done.returncode == (0 if last.endswith("true") else 1)
