"""One question has one answer: `simulate`, `plan` and `recommend` look at the same documents, and name the same method."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

import longca
from longca.api.recommend import Recommendation
from longca.cli import main

ROOT = Path(__file__).parents[2]
Captured = pytest.CaptureFixture[str]
SHAPE = {"gpus": 2, "heads": "8:4"}


@cache
def ask(**given: object) -> Recommendation:
    return longca.recommend("causal_document", "2K", **SHAPE | {"head_dim": 64, "cluster": "h100-ib"} | given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_recommend_says_what_simulate_says() -> None:
    simulated = longca.simulate(masks="causal_document", seqlens="2K", head_dims=64, best=True, progress=False, **SHAPE)  # type: ignore[arg-type]
    (contest,) = simulated.contests
    first = ask()
    assert first.best is not None
    assert (first.best.method, first.best.grid) == (contest.best.split.method, contest.best.split.grid)
    assert first.best.ms == pytest.approx(contest.best.total_ms / 8)
    assert str(first).startswith(str(simulated).partition("\n")[0])
    assert first.answer.seeds == tuple(range(8))
    assert f'method="{first.best.method}"' in first.code
    assert "# simulated, not measured (cluster h100-ib)" in first.code
    assert first.best.sources == ()
    assert first.best.ms == longca.best("causal_document", "2K", head_dim=64, cluster="h100-ib", **SHAPE).ms  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_answer_for_a_model_is_for_all_its_layers() -> None:
    words = {"gpus": 2, "model": "gpt-oss-20b"}
    simulated = longca.simulate(masks="causal_document", seqlens="2K", best=True, progress=False, **words)  # type: ignore[arg-type]
    found = longca.recommend("causal_document", "2K", cluster="h100-ib", **words)  # type: ignore[arg-type]
    (contest,) = simulated.contests
    assert found.best is not None
    assert found.best.ms == pytest.approx(contest.best.total_ms / 8)
    assert str(found).startswith(str(simulated).partition("\n")[0])


def test_plan_has_the_first_of_the_packs(capsys: Captured) -> None:
    """The pack of `plan` is that of seed 0, with which `simulate` begins: its documents are the same."""
    simulated = longca.simulate("usp", "causal_document", seqlens="2K", head_dims=64, progress=False, **SHAPE)  # type: ignore[arg-type]
    planned = longca.plan("usp", "causal_document", seqlens="2K", head_dims=64, **SHAPE)  # type: ignore[arg-type]
    sent = {(row["pass"], row["seed"]): row["sent_bytes"] for row in simulated.rows}
    assert {row["seed"] for row in simulated.rows} == set(range(8))
    assert [(row["seed"], row["inside_bytes"] + row["between_bytes"]) for row in planned.rows] == [(0, sent["fwd", 0]), (0, sent["bwd", 0])]


@pytest.mark.slow
def test_less_memory_is_another_question() -> None:
    plenty, little = ask(), ask(memory="6MiB")
    assert plenty.best is not None
    assert little.best is None or little.best.memory_gib is not None
    assert little.best is None or little.best.memory_gib * 1024 <= 6  # type: ignore[operator]
    assert str(little) != str(plenty)


@pytest.mark.slow
def test_the_pages_show_what_the_command_prints(capsys: Captured) -> None:
    """The first line of the answer, of every `simulate --best` and `recommend --cluster` with an output in the README or the docs."""
    shown = 0
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for command, output in re.findall(r"^\$ longca ((?:simulate|recommend) .*)\n((?:[^`$\n].*\n)+)", page.read_text(), re.M):
            words = shlex.split(command)
            if "--best" in words or "--cluster" in words:
                assert main(words) == 0
                assert capsys.readouterr().out.splitlines()[0] == output.splitlines()[0], page
                shown += 1
    assert shown
