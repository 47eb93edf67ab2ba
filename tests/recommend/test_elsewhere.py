"""Kernels without a record of the length that is asked for, and faster than the best one at another: the answer names them."""

import json
from pathlib import Path

import pytest

from journals import Write
from longca.cli import main
from longca.recommend.answer import Answer, recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from report.made import around, kernel

SHORTER = [kernel("fa3", around(1.0), seqlen=8192), kernel("cudnn", around(0.5), seqlen=8192)]


def answer(folder: Path, seqlen: str = "16K") -> Answer:
    return recommend(Question.parse("causal", seqlen, heads="64:8"), load([folder]))


def test_a_faster_kernel_is_named_with_its_speed_there(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [*SHORTER, kernel("flex", around(0.99), seqlen=8192), kernel("fa3", around(4.0), seqlen=16384)])
    found = answer(folder)
    assert found.best is not None
    assert found.best.kernel == "fa3"
    assert found.elsewhere is not None
    assert found.elsewhere.sentence() == "cudnn has no record of this length; at 8K tokens it is faster than fa3 (2.00 times its speed)."
    assert main(["recommend", "--mask", "causal", "--seqlen", "16K", "--results", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[1] == found.elsewhere.sentence()
    assert main(["recommend", "--mask", "causal", "--seqlen", "16K", "--results", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["faster_elsewhere"] == {"seqlen": 8192, "ratios": {"cudnn": pytest.approx(2)}}


def test_the_nearest_length_that_has_the_best_kernel_decides(write: Write) -> None:
    made = [
        *(kernel("fa3", around(ms), seqlen=seqlen) for seqlen, ms in ((4096, 1.0), (8192, 2.0), (32768, 9.0))),
        *(kernel("cudnn", around(ms), seqlen=seqlen) for seqlen, ms in ((4096, 0.5), (8192, 3.0), (16384, 5.0))),
    ]
    assert answer(write("made", made), "32K").elsewhere is None  # cudnn is slower at 8K


@pytest.mark.parametrize(
    "here",
    [
        [kernel("cudnn", around(9.0), seqlen=16384)],
        [kernel("cudnn", None, seqlen=16384, status="oom", reason="no memory")],
    ],
    ids=["slower here", "failed here"],
)
def test_a_kernel_with_a_record_is_not_named(write: Write, here: list[object]) -> None:
    assert answer(write("made", [*SHORTER, kernel("fa3", around(4.0), seqlen=16384), *here])).elsewhere is None


def test_a_length_far_away_says_nothing(write: Write) -> None:
    made = [*SHORTER, kernel("fa3", around(4.0), seqlen=131072)]
    assert answer(write("made", made), "128K").elsewhere is None
