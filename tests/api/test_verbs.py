"""Every verb is a Python function, and returns what the command prints."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import longca
from longca.cli import main, verbs
from longca.results.shown import Shown

SPLIT: dict[str, Any] = {"gpus": 4, "per_gpu": "1K", "heads": "8:4", "head_dims": 64, "passes": "fwd"}
FLAGS = ["--gpus", "4", "--per-gpu", "1K", "--heads", "8:4", "--head-dim", "64", "--passes", "fwd"]


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_each_verb_has_a_function_with_a_signature() -> None:
    named = {"mask": "show_mask"}
    for verb in verbs():
        function = getattr(longca, named.get(verb, verb))
        assert inspect.getdoc(function)
        assert inspect.signature(function).return_annotation not in (inspect.Signature.empty, "Any")


def test_shared_parameters_stand_behind_own_ones() -> None:
    names = list(inspect.signature(longca.simulate).parameters)
    assert names[:3] == ["methods", "masks", "gpus"]
    assert names.index("cluster") < names.index("softcap")


def same(function: Shown, text: str) -> bool:
    return [line.split() for line in repr(function).splitlines()] == [line.split() for line in text.strip("\n").splitlines()]


def test_a_function_shows_what_its_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert same(longca.ls("masks"), printed(capsys, "ls", "masks"))
    assert same(longca.ls("kernels", "torch"), printed(capsys, "ls", "kernels", "torch"))
    assert same(longca.show_mask("causal", 64), printed(capsys, "mask", "causal", "--seqlen", "64"))
    assert same(longca.plan("ulysses,magi", **SPLIT), printed(capsys, "plan", *FLAGS, "--methods", "ulysses,magi"))
    simulated = longca.simulate(["ulysses", "magi"], "causal", best=True, progress=False, **SPLIT)
    assert same(simulated, printed(capsys, "simulate", *FLAGS, "--methods", "ulysses,magi", "--best"))
    rows = [json.loads(line) for line in printed(capsys, "simulate", *FLAGS, "--methods", "ulysses,magi", "--best", "--json").splitlines()]
    assert simulated.rows == rows
    assert {contest.best.split.method for contest in simulated.contests} <= {"ulysses", "magi"}
    assert json.loads(json.dumps(longca.schema())) == json.loads(printed(capsys, "schema"))


def test_a_mask_is_drawn_and_described(tmp_path: Path) -> None:
    shown = longca.show_mask("sliding_window", 64, params={"w": 9}, png=tmp_path / "a.png", bands=True)
    assert shown.png is not None
    assert shown.png.read_bytes().startswith(b"\x89PNG")
    (row,) = shown.rows
    assert row["area"] == shown.mask.area == longca.masks.sliding_window(64, w=9).area
    assert longca.show_mask(longca.masks.causal(8)).rows[0]["area"] == 36


@pytest.mark.slow
def test_methods_are_checked_on_ranks(tmp_path: Path) -> None:
    found = longca.verify_cp("ulysses", "causal", nproc=2, seqlens=64, device="cpu", out=tmp_path / "kit", progress=False)
    assert found.ok
    assert {row["method"] for row in found.rows} == {"ulysses"}
    assert found.packed == tmp_path / "kit.tar.gz"
    lines = (tmp_path / "kit" / "transfers.jsonl").read_text().splitlines()
    assert all(set(json.loads(line)) >= {"op", "bytes", "seconds"} for line in lines)
