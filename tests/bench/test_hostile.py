"""Kernels that do their worst, in real processes: each ends as its own status, and the others are measured all the same."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

EXPECTED = {
    "good": ("ok", ""),
    "segfaults": ("error", "SIGSEGV"),
    "exits": ("error", "exit code 7"),
    "killed": ("error", "SIGKILL"),
    "hangs": ("timeout", "took longer than its 6 s"),
    "greedy": ("oom", "memory"),
    "greedy_at_once": ("oom", "memory"),
    "prints": ("ok", ""),
    "corrupts": ("wrong", "changes its input k"),
    "gives_nan": ("wrong", "NaN"),
    "gives_garbage": ("wrong", "out is off"),
    "wrong_shape": ("wrong", "shape"),
    "raises": ("error", "ValueError: no, thank you"),
    "leaves_a_child": ("error", "exit code 9"),
    "closes_its_pipes": ("error", "during build"),
    "broken_import": ("error", "I need a library that nobody has"),
    "dying_import": ("error", "exit code 3"),
}


@pytest.fixture(scope="module")
def records(start_run: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    out = tmp_path_factory.mktemp("hostile")
    plugins = Path(__file__).parent / "plugins"
    files = [plugins / f"{name}.py" for name in ("hostile", "broken_import", "dying_import")]
    given = [argument for file in files for argument in ("--plugin", file)]
    arguments = ["--kernels", ",".join(EXPECTED), "--passes", "fwd", "--out", out, "--deadline", 6, "--memory", "3G"]
    with start_run(*given, *arguments, LONGCA_TEST=out) as process:
        _, errors = process.communicate(timeout=170)
    assert process.returncode == 0, errors
    lines = (out / "results.jsonl").read_text().splitlines()
    assert len(lines) == len(EXPECTED)
    return {record["asked"]: record for record in map(json.loads, lines)}


@pytest.mark.parametrize("kernel", EXPECTED)
def test_ends_as_its_own_status_with_a_reason(records: dict[str, dict[str, Any]], kernel: str) -> None:
    status, reason = EXPECTED[kernel]
    record = records[kernel]
    assert record["status"] == status, record["reason"]
    assert reason in record["reason"]
    assert (record["ms"] is None) == (status != "ok")


def test_no_worker_survives_kill_9_of_the_runner(start_run: Any, tmp_path: Path, plugins: Path, living_workers: Any) -> None:
    arguments = ("--plugin", plugins / "hostile.py", "--kernels", "hangs", "--out", tmp_path)
    process = start_run(*arguments, LONGCA_TEST=tmp_path)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hanging").exists():
        assert time.monotonic() < deadline, "the kernel never ran"
        time.sleep(0.05)
    assert living_workers(tmp_path)
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 10
    while living_workers(tmp_path):
        assert time.monotonic() < deadline, "a worker outlived its runner"
        time.sleep(0.05)
