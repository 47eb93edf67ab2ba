"""Many GPUs: where only simulated records answer, the command that asks for them is named, and answers."""

import shlex
from pathlib import Path

import pytest

from journals import Write
from longca.cli import main
from longca.errors import BadInput
from longca.recommend.answer import recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from longca.recommend.table import NO_RECORD
from report.made import split

Captured = pytest.CaptureFixture[str]
ANSWERS = "simulated records answer it"


def commands(said: str) -> list[list[str]]:
    """The commands that are named as answered by simulated records."""
    return [shlex.split(line.partition(": longca ")[2]) for line in said.splitlines() if line.startswith(ANSWERS)]


@pytest.mark.parametrize(("mask", "distribution"), [("causal", []), ("causal_document", ["--distribution", "prolong64k"])])
def test_the_shipped_simulations_are_named_by_commands_that_answer(capsys: Captured, mask: str, distribution: list[str]) -> None:
    assert main(["recommend", "--mask", mask, "--seqlen", "512K", "--gpus", "64"]) == NO_RECORD
    said = capsys.readouterr().out
    assert "TFLOP/s" not in said, "simulated values need --cluster"
    assert "longca simulate" not in said
    named = commands(said)
    assert {words[words.index("--cluster") + 1] for words in named} == {"h100-ib", "h200-ib"}
    for words in named:
        assert "--results" not in words
        assert [word for word in words if word in ("--distribution", "prolong64k")] == distribution
        assert main(words) == 0
        assert "SIMULATED" in capsys.readouterr().out


def document(distribution: str | None, packing: str | None = None) -> dict[str, object]:
    given = {"distribution": distribution, "packing": packing}
    about = {"mask": "causal_document", "simulated": "h100-ib", "given": {name: value for name, value in given.items() if value}}
    return split("usp", 1.0, mask_digest=f"{distribution} {packing}", **about)


def asked(folder: Path, *more: str) -> int:
    return main(["recommend", "--mask", "causal_document", "--seqlen", "8K", "--gpus", "64", "--results", str(folder), *more])


def test_the_only_documents_of_a_cluster_answer_with_a_remark(write: Write, capsys: Captured) -> None:
    folder = write("made", [document("chatqa2", "chunked")])
    assert asked(folder, "--cluster", "h100-ib") == 0
    remark = "the simulated records have documents of"
    assert f"\n{remark} --distribution chatqa2 --packing chunked; these are used.\n" in capsys.readouterr().out
    assert asked(folder, "--cluster", "h100-ib", "--distribution", "chatqa2") == 0
    assert f"\n{remark} --packing chunked; these are used.\n" in capsys.readouterr().out, "what was given needs no remark"
    found = recommend(Question.parse("causal_document", "8K", gpus=64, cluster="h100-ib"), load([folder]))
    assert (found.question.distribution, found.question.packing) == ("chatqa2", "chunked")
    assert asked(folder, "--cluster", "h100-ib", "--exact") == NO_RECORD
    (command,) = commands(capsys.readouterr().out)
    assert command[-2:] == ["--results", str(folder)]
    assert main(command) == 0
    assert remark not in capsys.readouterr().out


def test_a_model_adds_no_remark_on_planning_to_simulated_documents(write: Write, capsys: Captured) -> None:
    assert asked(write("made", [document("prolong64k")]), "--cluster", "h100-ib", "--model", "llama3-70b") == 0
    assert "one plan serves" not in capsys.readouterr().out


def test_documents_that_are_asked_for_are_never_others(write: Write, capsys: Captured) -> None:
    folder = write("made", [document("prolong64k")])
    assert asked(folder, "--cluster", "h100-ib", "--distribution", "pile") == NO_RECORD
    assert commands(capsys.readouterr().out) == []


def test_of_several_distributions_each_is_named(write: Write, capsys: Captured) -> None:
    folder = write("made", [document("prolong64k"), document("pile")])
    assert asked(folder, "--cluster", "h100-ib") == NO_RECORD
    said = capsys.readouterr().out
    assert f"{ANSWERS} with other documents: longca recommend --mask causal_document " in said
    assert [words[words.index("--distribution") + 1] for words in commands(said)] == ["prolong64k", "pile"]


def test_a_simulated_record_that_failed_is_not_named(write: Write, capsys: Captured) -> None:
    failed = {"status": "oom", "reason": "too large", "ms": None, "check": None, "tflops": None, "mfu": None}
    assert asked(write("made", [document(None) | failed])) == NO_RECORD
    said = capsys.readouterr().out
    assert commands(said) == []
    assert "to simulate it without GPUs: longca simulate" in said


def test_simulated_records_have_no_planning_time(write: Write, capsys: Captured) -> None:
    folder = write("made", [document(None)])
    assert asked(folder, "--cluster", "h100-ib", "--calls-per-plan", "1") == 2
    said = "simulated records have no planning time; leave out --calls-per-plan, or --cluster for measured records."
    assert capsys.readouterr().err == f"longca: {said}\n"
    with pytest.raises(BadInput, match="no planning time"):
        Question.parse("causal", "8K", gpus=64, cluster="h100-ib", calls_per_plan=1)
