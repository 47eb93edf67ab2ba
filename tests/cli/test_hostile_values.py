"""No value of any flag ends in a traceback: every answer is a table or one sentence."""

import argparse
from pathlib import Path

import pytest

from longca.cli import main
from longca.cli import run as run_verb

LONG = "9" * 5000
VALUES = ["", " , ", "-1", "0", "1e30", "1e308", "nan", "inf", "-", "=", "a=", "=1", "w=1e30", "w=nan", "B=1e30", "ratio=2", "64:", ":8",
          "1/0", "1/99999999999999999999", "x" * 300, LONG, f"1,{LONG}", "\n", "../nowhere/..", "[]", "{}", "ünï",
          "--", "1e200", "8K,", "0x10"]  # fmt: skip
NUMBERS = ("0", "-1", "99999999999", "99999999999999999999999", "1e300", "nan", "inf", "", "x")
DRY = ["run", "--kernels", "torch", "--device", "cpu", "--masks", "causal", "--seqlens", "64", "--heads", "2:1", "--dry-run"]
RUN_FLAGS = [
    *("--kernels", "--methods", "--nproc", "--grid", "--masks", "--source", "--dense", "--seqlens", "--heads", "--head-dim", "--dtype"),
    *(
        "--passes",
        "--seed",
        "--seeds",
        "--set",
        "--lengths",
        "--distribution",
        "--packing",
        "--workload",
        "--model",
        "--plugin",
        "--out",
        "--shard",
        "--budget",
    ),
    *("--energy", "--clock", "--memory", "--deadline", "--workers", "--stop-after", "--fail-on", "--level", "--device", "--retry"),
    *("--baseline", "--threshold", "--softcap", "--scale", "--option"),
]
MASK_FLAGS = [
    "--seqlen",
    "--seed",
    "--set",
    "--source",
    "--heads",
    "--head-dim",
    "--lengths",
    "--distribution",
    "--packing",
    "--png",
    "--plugin",
]
OTHERS = [["export", "DIR", "--csv"], ["export"], ["report"], ["compare"], ["compare", "x"], ["recommend", "--mask", "causal", "--seqlen"],
          ["recommend", "--seqlen", "8K", "--mask"], ["recommend", "--mask", "causal", "--seqlen", "8K", "--results"], ["merge", "a"],
          ["ls"], ["compare", "x", "y", "--threshold"], ["compare", "x", "y", "--fail-on"], ["compare", "--history"],
          ["compare", "--history", "x"], ["verify", "--dtype"], ["verify", "--heads"], ["verify", "--head-dim"]]  # fmt: skip


def answer(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code and stderr of a command; raises what it raises."""
    code = main(arguments)
    return code, capsys.readouterr().err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def refused_in_a_sentence(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, told = answer(arguments, capsys)
    assert code in (0, 1, 2, 4)
    if code == 2:
        assert told.startswith("longca: ")
        assert told.count("\n") <= 1 + sum(argument.count("\n") for argument in arguments)


@pytest.mark.parametrize("flag", RUN_FLAGS)
def test_run(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for value in dict.fromkeys([*VALUES, *NUMBERS]):
        refused_in_a_sentence([*DRY, flag, value], capsys)
        refused_in_a_sentence([*DRY[:-1], "--print-config", flag, value], capsys)


def test_every_flag_of_run_is_tried() -> None:
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    takes = {
        max(action.option_strings, key=len)
        for action in parser._actions
        if action.option_strings and action.nargs != 0 and action.dest != "help"
    }
    assert takes == set(RUN_FLAGS)


@pytest.mark.parametrize("value", VALUES)
def test_suites_and_masks_by_name(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused_in_a_sentence(["run", f"{value}.toml", "--dry-run"], capsys)
    for arguments in (["run", value, "--dry-run", "--device", "cpu"], ["mask", value]):
        if not value.startswith("-"):
            assert answer(arguments, capsys)[0] == 2


@pytest.mark.parametrize("flag", MASK_FLAGS)
def test_mask(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    for value in dict.fromkeys([*VALUES, *NUMBERS]):
        for name in ("causal_document", "uniform_block"):
            refused_in_a_sentence(["mask", name, "--seqlen", "256", flag, value], capsys)


@pytest.mark.parametrize("arguments", OTHERS, ids=" ".join)
def test_readers_of_journals(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for value in VALUES:
        refused_in_a_sentence([*arguments, value], capsys)


EMPTY = [["run", ""], ["run", "--out", "", "--kernels", "torch"], ["run", "--kernels", ""], ["run", "--kernels", " , "],
         ["run", "--kernels", "torch", "--plugin", ""], ["run", "--kernels", "torch", "--set", ""], ["verify", "--kernels", ""],
         ["verify", "--plugin", ""], ["mask", ""], ["export", "", "--csv"], ["export", "x", "--csv", ""], ["report", ""],
         ["report", "x", "--out", ""], ["compare", "", "x"], ["compare", "x", ""], ["recommend", "--results", ""], ["merge", "", "x"],
         ["merge", "x", ""], ["ls", ""], ["run", "--kernels", "torch", "--fail-on", ""]]  # fmt: skip


@pytest.mark.parametrize("arguments", EMPTY, ids=" ".join)
def test_empty_values_are_refused_in_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code, told = answer(arguments, capsys)
    assert code == 2
    assert " is empty; give a value, or leave it out." in told


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("s.toml", "seeds = 1000000000000", "seeds"),
        ("s.toml", "params = " + "[" * 100_000, "it is nested too deeply"),
        ("w.jsonl", "[" * 100_000, "w.jsonl line 1"),
        ("w.jsonl", '{"mask": "causal", "seqlen": 64, "params": ' + '{"a":' * 100_000, "w.jsonl line 1"),
        ("w.jsonl", '{"mask": "causal", "seqlen": 64, "seed": 99999999999999999999999}', "seed"),
    ],
    ids=["many seeds", "nested lists", "brackets", "nested objects", "a large seed"],
)
def test_files(name: str, text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(name).write_text(text)
    given = [name] if name.endswith("toml") else ["--workload", name]
    code, told = answer(["run", "--kernels", "torch", "--device", "cpu", "--dry-run", *given], capsys)
    assert code == 2
    assert sentence in told


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--budget", "1e308"], "--budget must be a number of seconds over 0, not 1e+308; give 1e+07 at most"),
        (["--deadline", "1e300"], "--deadline must be a number of seconds over 0, not 1e+300"),
        (["--seeds", "1000000000000"], "--seeds 1000000000000 is how many seeds, from 1 to 10000; --seed 1000000000000 is that one seed"),
        (["--memory", "1e30G"], "'1e30G' is too large"),
        (["--methods", "all", "--nproc", "99999999999"], "--nproc must be 1048576 ranks or fewer, not 99999999999"),
        (["--heads", "99999999999999999999:1"], "write heads such as 64:8"),
        (["--head-dim", "0"], "write a head size such as 128"),
        (["--fail-on", "slow"], "unknown status for --fail-on 'slow'; known are: doubtful, error, invalid, oom"),
    ],
)
def test_sentences(flags: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = answer([*DRY, *flags], capsys)
    assert code == 2
    assert sentence in told
