"""`longca run --fail-on`: which outcomes make the exit code 1, and what the last line says."""

from collections.abc import Collection
from pathlib import Path

import pytest

from longca.api.run import Run
from longca.bench.run.words import faults
from longca.cli import main
from longca.results.record import RETRIED, Status

WRONG = """import longca

@longca.kernel()
def wrong(q, k, v, mask, scale):
    return v.mean(0, keepdim=True).expand_as(v).repeat_interleave(q.shape[1] // v.shape[1], 1).clone() + 0 * (q + k.sum())
"""
SMALL = [
    "--masks",
    "causal",
    "--seqlens",
    "64",
    "--heads",
    "2:1",
    "--head-dim",
    "8",
    "--dtype",
    "fp32",
    "--passes",
    "fwd",
    "--budget",
    "0.01",
]


@pytest.mark.usefixtures("in_process")
def test_a_wrong_kernel_fails_a_run_that_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, "parts", lambda _: [])
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [
        "run",
        *SMALL,
        "--device",
        "cpu",
        "--plugin",
        str(tmp_path / "wrong.py"),
        "--kernels",
        "wrong",
        "--out",
        str(tmp_path / "out"),
    ]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 cell is wrong; --fail-on wrong makes that exit code 1."
    for statuses, code in (("wrong,error", 1), ("error", 0), ("all", 1)):  # of records that an earlier run wrote, too
        assert main([*command, "--fail-on", statuses]) == code
        assert ("as --fail-on wrong asks" in capsys.readouterr().out.splitlines()[-1]) == bool(code)


@pytest.mark.parametrize(
    ("seen", "failing", "line"),
    [
        ({Status.OK: 5, Status.UNSUPPORTED: 2, Status.SKIPPED: 1}, RETRIED, ""),
        ({Status.OOM: 2, Status.UNAVAILABLE: 1}, (), ""),
        ({Status.WRONG: 3}, (), "3 cells are wrong; --fail-on wrong makes that exit code 1."),
        ({Status.WRONG: 1, Status.ERROR: 2}, (), "3 cells failed (1 wrong, 2 error); --fail-on wrong,error makes that exit code 1."),
        ({Status.OOM: 2}, {Status.OOM}, "2 cells are oom: exit code 1, as --fail-on oom asks."),
        ({Status.WRONG: 1, Status.ERROR: 2}, {Status.WRONG}, "3 cells failed (1 wrong, 2 error): exit code 1, as --fail-on wrong asks."),
        ({Status.ERROR: 1}, {Status.OOM}, "1 cell is error; --fail-on error makes that exit code 1."),
    ],
)
def test_the_last_line(seen: dict[Status, int], failing: Collection[Status], line: str) -> None:
    assert faults(seen, failing) == line
