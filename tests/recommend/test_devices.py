"""Records of several devices: the command answers for each, and what holds one answer needs --device."""

import json
from pathlib import Path

import pytest

import longca
from journals import Write
from longca.cli import main
from longca.errors import BadInput
from report.made import around, kernel

Captured = pytest.CaptureFixture[str]
NAMES = "(NVIDIA B200, NVIDIA H200)"


@pytest.fixture
def words(write: Write) -> list[str]:
    return ["recommend", "--mask", "causal", "--results", *map(str, two(write)), "--seqlen"]


def two(write: Write) -> list[Path]:
    """Journals of an H200 and of a B200."""
    folders = [write("a", [kernel("fa4", around(1.0))]), write("b", [kernel("flex", around(2.0), env="x", mfu=None)])]
    (folders[1] / "env.json").write_text(json.dumps({"x": {"device": "NVIDIA B200", "device_kind": "cuda"}}))
    return folders


@pytest.mark.parametrize("seqlen", ["8K", "10K"])  # exactly, and as the nearest answer
def test_each_device_has_an_answer_below_its_name(words: list[str], capsys: Captured, seqlen: str) -> None:
    assert main([*words, seqlen]) == 0
    lines = capsys.readouterr().out.splitlines()
    places = [lines.index(f"{name}:") for name in ("NVIDIA B200", "NVIDIA H200")]
    assert places == sorted(places)
    assert [lines[place + 1].split(":")[0] for place in places] == ["use flex", "use fa4"]
    assert lines[places[1] - 1] == ""
    assert main([*words, seqlen, "--device", "NVIDIA B200"]) == 0
    alone = capsys.readouterr().out.splitlines()
    assert alone == lines[1 : places[1] - 1], "the same as for this device alone"


@pytest.mark.parametrize("output", [["--json"], ["--code"], ["--export", "answer.json"]])
def test_what_holds_one_answer_needs_the_device(
    words: list[str], capsys: Captured, output: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "8K", *output]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"longca: records of several devices answer this {NAMES}; choose one with --device.\n"
    assert shown.out == ""
    assert main([*words, "8K", *output, "--device", "H200"]) == 0


def test_in_python_it_stays_an_error(write: Write) -> None:
    folders = two(write)
    for ask in (longca.recommend, longca.best):
        with pytest.raises(BadInput, match="choose one with --device"):
            ask("causal", "8K", results=folders)
    assert longca.best("causal", "8K", results=folders, device="B200").kernel == "flex"
