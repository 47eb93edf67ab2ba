"""`longca explain` says what `best` would run, and `best` goes through verify and run like any other kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import longca
from longca import masks
from longca.cli import main
from longca.kernels import registry
from longca.kernels.backends import torch_attention
from longca.kernels.base import Case
from longca.kernels.choice import _autotune, chooser, records
from longca.results.reading import read

SMALL = {"heads": "4:2", "head_dim": 16, "dtype": "fp32", "device": "cpu"}
LONG = 1 << 15


@pytest.fixture(autouse=True)
def _nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(records.CACHE, str(tmp_path / "cache"))
    chooser.forget()


def test_what_was_not_measured_names_the_kernels_that_autotuning_would_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_autotune, "autotune", None)  # nothing is timed
    told = longca.explain("share_question", 256, **SMALL)
    assert told.ok
    assert told.choice is None
    assert told.why == dict.fromkeys(("fwd", "bwd"), "no records: autotuning would time sdpa:flash, torch:plain, torch:chunked")
    assert "forward: undecided, likely sdpa:flash" in repr(told)
    assert "`longca tune` measures beforehand" in repr(told)


def test_autotuning_in_this_process_is_explained_by_its_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(_autotune.BUDGET_S, "cpu", 60.0)  # so that every kernel is tried on a busy machine, too
    choice = chooser.choose(masks.build("share_question", 256), Case(256, 256, 4, 2, 16, 16, "fp32"))
    told = longca.explain("share_question", 250, **SMALL)  # of that class
    assert (told.choice, choice.source) == (choice, "autotuning")
    for pass_, sentence in told.why.items():
        assert sentence.startswith(f"autotuned: {told.likely[pass_]} takes ")
    assert {row["kernel"] for row in told.rows if row["pass"] == "bwd"} == {"sdpa:flash", "torch:plain", "torch:chunked"}
    assert all(row["ms"] > 0 for row in told.rows)
    assert [row["kernel"] for row in told.rows if row["chosen"]] == list(choice.by_pass.values())


def test_one_kernel_needs_no_reason_but_that() -> None:
    told = longca.explain("share_question", LONG, **SMALL, backward=False)
    assert told.likely == {"fwd": "torch:chunked"}
    assert told.why == {"fwd": "no other kernel that is available here can do this"}


def test_records_of_another_device_answer_without_it() -> None:
    told = longca.explain("causal_document", LONG, device="h200", seed=42)
    assert told.device == "NVIDIA H200"
    wanted = {"fwd": "cudnn_flex:documents", "bwd": "band_cute"}
    assert told.likely == wanted
    for pass_, label in wanted.items():
        ratios = [row["slower"] for row in told.rows if row["pass"] == pass_]
        assert ratios == sorted(ratios)
        labels = [row["kernel"] for row in told.rows if row["pass"] == pass_]
        assert len(set(labels)) == len(labels), "flex is a forward alone, and runs both passes"
        assert told.contenders[pass_][0] == label
        assert f"{100 * (ratios[1] / ratios[0] - 1):.0f} % ahead of {told.contenders[pass_][1]}" in told.why[pass_]
        assert all(row["slower"] <= chooser.FAR for row in told.rows if row["pass"] == pass_ and row["kernel"] in told.contenders[pass_])


@pytest.mark.parametrize("mask", masks.names())
@pytest.mark.parametrize("seqlen", ["8K", "32K", "128K"])
def test_every_mask_of_the_paper_has_records_near_it(mask: str, seqlen: str) -> None:
    told = longca.explain(mask, seqlen, device="H200", seed=42)
    assert all("records of NVIDIA H200" in sentence for sentence in told.why.values())


def test_a_mask_itself_can_be_explained() -> None:
    assert longca.explain(masks.causal(64), **SMALL).title == "causal, 64 tokens, 4:2 heads of 16, fp32"
    with pytest.raises(longca.BadInput, match="the mask has 64 tokens, not 65"):
        longca.explain(masks.causal(64), 65)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"softcap": -1.0}, "softcap must be a positive number, or 0 for none, not -1"),
        ({"seqlen": None}, "give a length beside the mask causal"),
        ({"mask": "cuasal"}, "unknown mask 'cuasal'; did you mean 'causal'"),
        ({"mask": "uniform_block", "heads": "4:2", "params": {"heads": 3}}, "uniform_block has 3 block patterns for 2 KV heads"),
    ],
)
def test_bad_questions_are_one_sentence(given: dict[str, Any], message: str) -> None:
    with pytest.raises(longca.BadInput) as told:
        longca.explain(**{"mask": "causal", "seqlen": 256, "device": "cpu", **given})
    assert str(told.value).startswith(message)


def test_the_seed_of_drawn_documents_is_named() -> None:
    """Records of other seeds may have another answer."""
    assert "documents of seed 3" in longca.explain("causal_document", 256, **SMALL, seed=3).title
    for given in ({"mask": "causal"}, {"mask": "causal_document", "documents": [128, 128]}):
        assert "seed" not in longca.explain(seqlen=256, **given, **SMALL).title


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_best_is_verified_on_all_masks_and_trials() -> None:
    verified = longca.verify("best", seqlens=128, heads="2:1", head_dims=16, device="cpu", progress=False)
    assert verified.ok, verified
    statuses = {finding.place: finding.status.value for finding in verified.findings}
    assert set(masks.names()) <= {name for finding in statuses for name in finding.replace("=", " ").split()}
    assert set(statuses.values()) <= {"ok"}, statuses
    assert any(name.startswith("trial: out and lse of all ring steps") for name in statuses)


@pytest.mark.usefixtures("in_process")
def test_best_is_measured_and_its_record_says_what_ran(tmp_path: Path) -> None:
    longca.run(
        kernels="best", masks="causal_document", seqlens=128, heads="2:1", head_dims=16, passes="fwd,bwd", budget=0.02, device="cpu",
        out=tmp_path / "out", progress=False,
    )  # fmt: skip
    made = read(tmp_path / "out").records
    assert [record.status.value for record in made] == ["ok", "ok"]
    (chose,) = {record.chose for record in made}
    assert chose
    assert set(chose.split(" + ")) <= set(registry.available_labels("cpu"))
    for record in made:
        assert (record.kernel, record.variant, record.backward_kind) == ("best", None, "functional")
        assert record.plan_ms is not None
        assert record.compile_ms is not None
        assert record.versions is not None
        assert "candidates" in record.versions


@pytest.mark.usefixtures("in_process")
def test_what_was_tuned_decides_for_its_class_and_is_an_ordinary_journal(capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--mask", "causal_document", "--seqlen", "128", "--heads", "2:1", "--head-dim", "16", "--device", "cpu"]
    assert longca.explain("causal_document", 128, heads="2:1", head_dim=16, device="cpu").choice is None
    assert main(["tune", *shape, "--budget", "0.01"]) == 0
    assert "`longca tune` on " in capsys.readouterr().out
    times = {pass_: dict[str, float]() for pass_ in ("fwd", "bwd")}
    for record in read(records.tuned_folder()).records:
        times[record.problem.pass_.value][record.label] = record.times.median
    told = longca.explain("causal_document", 130, heads="2:1", head_dim=16, device="cpu", seed=2)
    assert told.choice is not None
    assert told.choice.source == "records"
    for pass_, label in told.choice.by_pass.items():
        assert set(times[pass_]) == {"sdpa:flash", "torch:plain", "torch:chunked"}
        assert times[pass_][label] <= 1.011 * min(times[pass_].values())  # rounded ratios; of equal ones one may have less workspace
    answer = longca.recommend("causal_document", 128, results=str(records.tuned_folder()), heads="2:1", head_dim=16, dtype="fp32")
    assert min(times["fwd"], key=times["fwd"].__getitem__) in repr(answer)


@pytest.mark.usefixtures("in_process")
def test_kernels_that_fail_when_they_are_tuned_are_not_autotuned_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise longca.Refused("no engine for this.")

    monkeypatch.setattr(torch_attention.TorchKernel, "prepare", refuse)
    told = longca.tune("causal_document", 128, heads="2:1", head_dim=16, device="cpu", budget=0.01, progress=False).explanation
    assert told.choice is not None
    assert (told.choice.source, told.choice.by_pass) == ("records", {"fwd": "sdpa:flash", "bwd": "sdpa:flash"})


def test_the_command_prints_what_the_function_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lengths.txt").write_text("16 " * 16)
    command = ["explain", "--mask", "causal_document", "--seqlen", "256", "--device", "cpu", "--lengths", str(tmp_path / "lengths.txt")]
    told = longca.explain("causal_document", 256, device="cpu", documents=[16] * 16)
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told.to_json()
    assert main(command) == 0
    assert capsys.readouterr().out.startswith(f"{told.title}, ")
    monkeypatch.setattr(registry, "preferred", lambda device: [])
    assert main(command) == 2
    assert "no kernel that is available here supports this" in capsys.readouterr().out
