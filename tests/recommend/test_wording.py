"""Sentences of `longca recommend`: numbers of one thing, distances, and what a range is."""

import json
from pathlib import Path

import pytest

from journals import Write
from longca.cli import main
from longca.recommend.nearest_error import COVERED
from longca.recommend.question import Question
from longca.recommend.table import NO_RECORD
from recommend.cells import answer, cell

Captured = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
LENGTHS = tuple(n << 10 for n in (2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 24, 28, 32))


@pytest.mark.parametrize(
    ("w", "said"),
    [
        (128, "this parameter of the mask was not measured; the nearest is w=1024, 8 times wider"),
        (1, "this parameter of the mask was not measured; the nearest is w=1024, 1024 times wider"),
        (1536, "this parameter of the mask was not measured; the nearest is w=1024, 1.5 times narrower"),
    ],
)
def test_the_nearest_window_is_one_and_its_distance_is_said(write: Write, w: int, said: str) -> None:
    folder = write("made", [cell("fa4:bands", 8192, 300.0, mask="sliding_window_causal", params={"w": 1024})])
    found = answer(folder, "8K", "sliding_window_causal", params={"w": w})
    assert found.nearest is not None
    assert said in found.nearest.differences


def test_several_parameters_have_a_distance_each(write: Write) -> None:
    about = {"mask": "uniform_block", "level": "sparse", "params": {"b": 64, "ratio": 0.5, "heads": 8}}
    found = answer(write("made", [cell("flex", 8192, 300.0, **about)]), "8K", "uniform_block", params={"b": 128, "ratio": 0.4})
    assert found.nearest is not None
    said = "these parameters of the mask were not measured; the nearest are b=64, 2 times smaller and ratio=0.5, 1.25 times larger"
    assert said in found.nearest.differences


def test_one_token_is_no_tokens(write: Write, capsys: Captured) -> None:
    assert Question.parse("causal", 1).describe().startswith("causal, 1 token, ")
    folder = write("made", [cell("fa4:bands", n, 0.01) for n in (2, 3)])
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(folder), "--seqlen", "1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "1 token was not measured in this shape; the nearest measured length is 2: 2 times longer.\n" in said
    assert main([*words, "--gpus", "2"]) == 2
    assert capsys.readouterr().err == "longca: 2 GPUs cannot share 1 token; ask for fewer GPUs.\n"
    assert main([*words, "--exact"]) == NO_RECORD
    assert "1 tokens" not in capsys.readouterr().out


def test_the_range_is_not_said_to_hold_more_than_it_did(write: Write, capsys: Captured) -> None:
    """The table of docs/recommend.md has rows where fewer hidden measurements lie in the range than it is made for."""
    rows = [line.split("|") for line in (ROOT / "docs" / "recommend.md").read_text().splitlines() if " % of " in line and line[0] == "|"]
    held = [float(row[6].split("%")[0]) / 100 for row in rows]
    assert min(held) < COVERED
    folder = write("made", [cell("fa4:bands", n, 500.0) for n in LENGTHS])
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(folder), "--seqlen", "12K"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "\nthe range follows from measured cells that were predicted in the same way; docs/recommend.md shows how many " in said
    assert "nine of ten" not in said
    assert "90 %" not in said
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nearest"]["range_covers"] == COVERED
