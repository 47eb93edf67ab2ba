"""`longca run --fail-on`: which outcomes make the exit code 1."""

from pathlib import Path

import pytest

from longca.api.run import Run
from longca.cli import main

WRONG = """import longca

@longca.kernel()
def wrong(q, k, v, mask, scale):
    return v.mean(0, keepdim=True).expand_as(v).repeat_interleave(q.shape[1] // v.shape[1], 1).clone() + 0 * (q + k.sum())
"""
SMALL = "run --masks causal --seqlens 64 --heads 2:1 --head-dim 8 --dtype fp32 --passes fwd --budget 0.01 --device cpu --kernels wrong"


@pytest.mark.usefixtures("in_process")
def test_a_wrong_kernel_fails_a_run_that_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, "parts", lambda _: [])
    (tmp_path / "wrong.py").write_text(WRONG)
    command = [*SMALL.split(), "--plugin", str(tmp_path / "wrong.py"), "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 cell is wrong; --fail-on wrong makes that exit code 1."
    for statuses, code in (("wrong,error", 1), ("error", 0), ("all", 1)):  # of records that an earlier run wrote, too
        assert main([*command, "--fail-on", statuses]) == code
        assert ("as --fail-on wrong asks" in capsys.readouterr().out.splitlines()[-1]) == bool(code)
