"""Recommendations from made journals: who wins, who is out and why, what is said where no record answers."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.cli import main
from longca.recommend.rank import NO_RECORD, table
from longca.recommend.shipped import load
from longca.results.words import excluded
from recommend.cells import answer
from report.made import around, blocks, kernel, split

ROOT = Path(__file__).parents[2]


def test_the_fastest_the_runners_up_and_why_others_are_out(write: Write) -> None:
    made = [kernel(name, around(ms)) for name, ms in (("flex", 3.0), ("fa4:bands", 1.0), ("sdpa:cudnn", 1.005))]
    failed = [kernel(f"k{status}", None, status=status) for status in ("unsupported", "oom", "wrong", "timeout")]
    found = answer(write("made", [*made, *failed, kernel("fa3", around(0.1), "fwd")]))
    assert [choice.name for choice in found.choices] == ["fa4:bands", "sdpa:cudnn", "flex"]
    assert [choice.as_good for choice in found.choices] == [False, True, False]
    assert found.choices[2].against_best == pytest.approx(1 / 3, rel=0.01)
    assert {out.line: out.status for out in found.out} == {
        "koom": "oom", "ktimeout": "timeout", "kunsupported": "unsupported", "kwrong": "wrong", "fa3": "not measured",
    }  # fmt: skip
    assert next(excluded(out) for out in found.out if out.line == "fa3") == "there is no record of its bwd"
    assert "cudnn_flex" in found.unmeasured
    assert "flex" not in found.unmeasured
    assert "vsa" not in found.unmeasured  # it takes blocks only


def test_forward_and_backward_measured_apart_are_added(write: Write) -> None:
    made = [kernel("fa4:bands", around(1.0), "fwd", flops=10**10), kernel("fa4:bands", around(3.0), "bwd", flops=25 * 10**9, peak_gib=2.0)]
    made += [kernel("flex", around(1.0), "fwd"), kernel("flex", None, "bwd", status="oom", reason="out of memory")]
    found = answer(write("made", made))
    assert found.best is not None
    assert found.best.ms == pytest.approx(4.0)
    assert found.best.tflops == pytest.approx(3.5e10 / 4.0 / 1e9)
    inputs = 8192 * (64 * 128 * 2 + 8 * 128 * 2) * 2 / 2**30
    assert found.best.memory_gib == pytest.approx(2.0 + inputs)
    assert [(out.line, out.status) for out in found.out] == [("flex", "oom")]


def test_a_record_of_both_passes_counts_before_the_sum(write: Write) -> None:
    made = [kernel("fa4", around(1.0), "fwd"), kernel("fa4", around(1.0), "bwd"), kernel("fa4", around(5.0), "fwd+bwd")]
    best = answer(write("made", made)).best
    assert best is not None
    assert best.ms == pytest.approx(5.0)


def test_forwards_of_training_and_of_inference_are_told_apart(write: Write) -> None:
    made = [kernel("fa4", around(2.0), "fwd", grad=True), kernel("fa4", around(1.0), "fwd", grad=False), kernel("flex", around(3.0), "fwd")]
    folder = write("made", [*made, kernel("fa4", around(4.0), "bwd")])
    fwd, both = answer(folder, pass_="fwd").best, answer(folder).best
    assert fwd is not None
    assert both is not None
    assert (fwd.ms, both.ms) == (pytest.approx(1.0), pytest.approx(6.0))


def test_on_a_cpu_what_runs_on_gpus_only_is_not_missing(write: Write) -> None:
    host = {"device": "Some CPU", "device_kind": "cpu"}
    assert answer(write("made", [kernel("torch:plain", around(1.0))], host)).unmeasured == (
        "sdpa",
    )  # neither fa4, nor flex, which has no backward there
    assert "flex" in answer(write("fwd", [kernel("torch:plain", around(1.0), "fwd")], host), pass_="fwd").unmeasured


def test_many_gpus_and_simulated_records_are_never_mixed(write: Write) -> None:
    made = [split("usp", 5.0), split("magi", 4.0), kernel("fa4:bands", around(100.0))]
    folder = write("made", [*made, *(split(name, ms, simulated="h100-ib") for name, ms in (("usp", 1.0), ("ring_p2p", 2.0)))])
    measured = answer(folder, gpus=64)
    assert [choice.name for choice in measured.choices] == ["magi 8x8 fa4:bands", "usp 8x8 fa4:bands"]
    assert measured.best is not None
    assert (measured.best.method, measured.best.grid, measured.best.kernel) == ("magi", "8x8", "fa4:bands")
    assert measured.best.tflops == pytest.approx(made[1]["flops"] / 64 / 4.0 / 1e9)
    assert measured.best.memory_gib == 1.5  # of a rank the count has its tokens in it
    assert "ulysses" in measured.unmeasured


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_the_advised_run_answers_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Ask, run what is advised (smaller), ask again as advised, and run the lines of Python it prints."""
    monkeypatch.chdir(tmp_path)
    shape = ["--heads", "4:2", "--head-dim", "16", "--dtype", "fp32"]
    asked = ["recommend", "--mask", "causal_document", "--seqlen", "1K", *shape, "--results"]
    assert main([*asked, *_empty(tmp_path)]) == NO_RECORD
    lines = capsys.readouterr().out.splitlines()
    run = shlex.split(next(line for line in lines if line.startswith("to measure")).partition(": ")[2])
    then = [*asked, next(line for line in lines if line.startswith("then ")).split()[-1]]
    run[run.index("all")] = "torch:plain,sdpa:math"
    assert main([*run[1:], "--budget", "0.02", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main([*then, "--details"]) == 0
    said = capsys.readouterr().out
    assert "means and ranges over 3 masks (seeds 0, 1, 2)" in said
    assert f"records: {2 * 3} in out/recommend/results.jsonl" in said
    assert " --seeds 0,1,2 " in next(line for line in said.splitlines() if line.startswith("to measure it again: "))
    assert main([*then, "--code"]) == 0
    code = capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-c", code + "assert q.grad.isfinite().all()"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    best = longca.best("causal_document", "1K", "4:2", 16, "fp32", results=["out/recommend"])
    assert f'kernel="{best.kernel}"' in code


def test_a_device_is_named_by_whole_words(write: Write) -> None:
    made = [kernel("fa4", around(1.0)), kernel("flex", around(1.0), env="nvl")]
    folder = write("made", made)
    environments = {"e": {"device": "NVIDIA H200"}, "nvl": {"device": "NVIDIA H200 NVL"}}
    (folder / "env.json").write_text(json.dumps(environments))
    assert answer(folder, device="H20").best is None
    assert [found.kernel for name in ("h200 nvl", "NVL") if (found := answer(folder, device=name).best)] == ["flex", "flex"]
    whole = answer(folder, device="nvidia h200").best  # a name that is all of one, and a part of another
    assert whole is not None
    assert whole.kernel == "fa4"
    answers = table(load([folder]), {"device": "h200", "pass_": "fwd+bwd"})
    assert {(found.device, found.best and found.best.kernel) for found in answers} == {("NVIDIA H200", "fa4"), ("NVIDIA H200 NVL", "flex")}
    assert table(load([folder]), {"device": "H20"}) == []


def test_one_pattern_for_all_heads_is_another_problem(write: Write) -> None:
    folder = write("made", [blocks("flex", around(1.0)), blocks("fa4", around(2.0), heads=1)])
    own, one = (answer(folder, mask="uniform_block", params=params).best for params in ({}, {"heads": 1}))
    assert (own and own.kernel, one and one.kernel) == ("flex", "fa4")
    assert answer(folder, mask="uniform_block", params={"heads": 2}).best is None
    answers = table(load([folder]), {"pass_": "fwd+bwd"})
    assert {found.question.problem.params: found.best and found.best.kernel for found in answers} == {
        (): "flex",
        (("heads", 1),): "fa4",
    }


@pytest.mark.parametrize(
    ("asked", "able", "unable"),
    [
        ({"params": {"b": 64}}, {"vsa", "cudnn_bsa", "flex"}, set()),
        ({"params": {"b": 128}}, {"cudnn_bsa", "flex"}, {"vsa"}),  # which takes blocks of 64
        ({"params": {"b": 64}, "source": "nsa"}, {"flex", "block_triton"}, {"vsa", "cudnn_bsa"}),  # whose blocks are whole
        ({"params": {"b": 64, "heads": 3}}, set(), {"vsa", "cudnn_bsa", "flex"}),
    ],
)
def test_only_what_could_do_it_is_worth_measuring(write: Write, asked: Any, able: set[str], unable: set[str]) -> None:
    found = answer(write("made", [blocks("torch", around(1.0))]), mask="uniform_block", heads="8:8", **asked)
    assert able <= set(found.unmeasured)
    assert not unable & set(found.unmeasured)


def _empty(folder: Path) -> list[str]:
    (folder / "empty").mkdir()
    (folder / "empty" / "results.jsonl").write_text("")
    return [str(folder / "empty")]


def test_planning_changes_the_answer(write: Write) -> None:
    made = [
        kernel(name, [ms] * 6, mask="causal_document", plan_ms=plan_ms) for name, ms, plan_ms in (("cudnn", 6.0, 146.0), ("fa3", 7.0, 2.0))
    ]
    folder = write("made", made)
    names = {calls: answer(folder, mask="causal_document", calls_per_plan=calls).choices[0] for calls in (None, 1, 1000)}
    assert {calls: choice.name for calls, choice in names.items()} == {None: "cudnn", 1: "fa3", 1000: "cudnn"}
    assert names[1].ms == pytest.approx(9.0)
    assert names[1000].ms == pytest.approx(6.146)
    untimed = answer(write("untimed", [record | {"plan_ms": None} for record in made]), mask="causal_document", calls_per_plan=1)
    assert [out.status for out in untimed.out] == ["not measured"] * 2


def test_energy_is_what_was_measured(write: Write) -> None:
    made = [kernel("fa3", [1.0] * 6, watts=900.0), kernel("fa4:bands", [1.0] * 6, joules=0.3)]
    made += [kernel("flex", [2.0] * 6, which, joules=joules) for which, joules in (("fwd", 0.5), ("bwd", 1.0))]
    joules = {choice.name: choice.joules for choice in answer(write("made", made)).choices}
    assert joules == {"fa3": None, "fa4:bands": pytest.approx(0.3), "flex": pytest.approx(1.5)}
