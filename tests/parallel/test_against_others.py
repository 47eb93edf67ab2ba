"""What the comparison with other implementations says of its own figures."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "cp_against_others.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("cp_against_others", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(seqlen: int, ratio: float, communication: float, apart: float = 0.0) -> dict[str, Any]:
    figures = {"forward ratio": ratio, "forward communication": communication}
    fine = {"backward ratio": 1.0, "backward communication": 0.4 if seqlen == 512 else 0.01}
    return {"against": "somebody", "seqlen": seqlen, "apart": apart, "tolerance": 1e-6} | figures | fine


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (row(512, 0.95, 0.31), ""),
        (row(12288, 0.95, 0.049), ""),
        (row(512, 0.949, 0.5), "ratio under 0.95"),
        (row(512, 1.2, 0.29), "communication not over 30%"),
        (row(12288, 1.2, 0.053), "communication not under 5%"),
        (row(12288, 1.2, 0.01, apart=1e-3), "results differ by 1.0e-03"),
    ],
)
def test_what_is_outside_of_what_is_asked_for_is_named_and_fails(
    given: dict[str, Any], fault: str, script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.faults(given)["forward"] == ([fault] if fault else [])
    assert script.judge([given]) == (1 if fault else 0)
    assert (fault or "0 of 2 comparisons are outside") in capsys.readouterr().out


def test_nothing_compared_is_no_success(script: Any) -> None:
    assert script.judge([]) == 1


def test_figures_of_an_earlier_run_are_judged(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for ratio, code in ((1.0, 0), (0.5, 1)):
        (tmp_path / "figures.json").write_text(json.dumps({"rows": [row(512, ratio, 0.5)]}))
        monkeypatch.setattr(sys, "argv", ["cp_against_others.py", "--judge", str(tmp_path / "figures.json")])
        assert script.main() == code
