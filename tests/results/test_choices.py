"""The table that `best` chooses by follows from the shipped journals, and leaves out what it should."""

from __future__ import annotations

from typing import Any

import pytest

from longca import masks
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.kernels.choice import chooser, measured
from longca.kernels.choice.candidates import Candidates
from longca.kernels.choice.classes import shape_class
from longca.recommend import shipped
from longca.results.choices import table
from longca.results.problem import Pass

DEVICE = "NVIDIA H200"
SHAPE = (64, 8, 128, 128, "bf16", "cuda")


def test_the_table_follows_from_the_shipped_journals() -> None:
    assert table(shipped.load()) == measured.entries(), "run tools/choices.py"


def test_the_fastest_of_a_class_is_that_of_its_records() -> None:
    """Of causal documents at 32K tokens in one journal, computed here from the records themselves."""
    results = shipped.load()
    mask = masks.causal_document(1 << 15, seed=42)
    for pass_ in (Pass.FWD, Pass.BWD):
        times = {
            record.label: record.times.median
            for record in results.records
            if record.ok and record.built.digest == mask.digest and record.problem.pass_ is pass_ and record.problem.heads_kv == 8
        }
        case = Case(1 << 15, 1 << 15, *SHAPE)
        known = measured.evidence(DEVICE, shape_class(mask, case), pass_.value)
        assert known is not None
        assert known.exact
        if known.entry.points == 1:
            assert {label: round(ms / min(times.values()), 4) for label, ms in times.items()} == {
                label: standing.slower for label, standing in known.entry.kernels.items()
            }


def test_no_class_lacks_its_fastest() -> None:
    for entry in measured.entries():
        assert min(standing.slower for standing in entry.kernels.values()) < 1.05
        assert all(standing.slower >= 1 for standing in entry.kernels.values())
        assert set(entry.kernels) <= {label for name in registry.compared_names() for label in registry.labels(name)}


def entry(mask: str, seqlen: int, kernels: dict[str, float], versions: str = "now", **changes: object) -> measured.Entry:
    standings = {label: measured.Standing(slower, [versions]) for label, slower in kernels.items()}
    values = {"heads": "64:8", "head_dim": "128", "dtype": "bf16", "pass_": "fwd"} | changes
    return measured.Entry(DEVICE, mask, seqlen, kernels=standings, **values)  # type: ignore[arg-type]


def kernels(*labels: str) -> list[Kernel]:
    return [registry.get(label) for label in labels]


@pytest.mark.parametrize(
    ("exact", "left"), [(True, ["fa4:bands", "fa3", "flex", "cudnn"]), (False, ["fa4:bands", "fa3", "flex", "fa2:torch", "cudnn"])]
)
def test_records_leave_out_more_the_nearer_they_are(exact: bool, left: list[str]) -> None:
    slower = {"fa3": 1.04, "fa4:bands": 1.0, "flex": 1.1, "fa2:torch": 1.2, "sdpa:flash": 1.3}
    known = measured.Evidence(entry("causal, 1/2", 8192, slower), exact)
    asked = kernels("sdpa:flash", "fa2:torch", "flex", "fa3", "fa4:bands", "cudnn")
    assert [kernel.label for kernel in measured.contenders(asked, known)] == left


@pytest.mark.parametrize(("then", "is_left"), [(1.2, True), (1.3, False)])
def test_a_kernel_that_the_nearest_entry_lacks_stands_as_in_the_next(then: float, is_left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        entry("causal, 1/2", 2048, {"fa3": 1.0, "flex": 5.0, "sdpa:flash": 5.0}),
        entry("causal, 1/2", 4096, {"fa3": 1.0, "flex": then}),
        entry("causal, 1/2", 8192, {"fa3": 1.0, "cudnn": 1.0}),
    ]
    monkeypatch.setattr(measured, "entries", lambda: made)
    wanted = shape_class(masks.causal(8), Case(1 << 13, 1 << 13, *SHAPE))
    known = measured.evidence(DEVICE, wanted, "fwd")
    left = measured.contenders(kernels("flex", "sdpa:flash", "fa4:bands", "fa3"), known)
    assert [kernel.label for kernel in left] == ["fa3", *["flex"] * is_left, "fa4:bands"]


def test_a_kernel_is_not_left_out_for_one_that_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        entry("causal, 1/2", 4096, {"fa3": 1.0, "flex": 1.8, "sdpa:flash": 1.75, "sdpa:efficient": 2.3}),
        entry("causal, 1/2", 8192, {"fa3": 1.0, "flex": 1.6}),
    ]
    monkeypatch.setattr(measured, "entries", lambda: made)
    wanted = shape_class(masks.causal(8), Case(1 << 13, 1 << 13, *SHAPE))
    known = measured.evidence(DEVICE, wanted, "fwd")
    without_fa3 = measured.contenders(kernels("sdpa:flash", "sdpa:efficient", "flex"), known)
    assert [kernel.label for kernel in without_fa3] == ["flex", "sdpa:flash"]  # fa3 is not installed
    assert [kernel.label for kernel in measured.contenders(kernels("sdpa:flash", "flex", "fa3"), known)] == ["fa3"]


LONG = 1 << 17
NEAR = {"fwd": {"fa3": 1.0, "fa4:native": 1.02}, "bwd": {"fa3": 1.03, "fa4:native": 1.0}}


@pytest.mark.parametrize(
    ("changed", "decided"),
    [
        ({}, True),
        ({"seqlen": 1 << 13}, False),  # a trial times the whole call
        ({"recorded": 1 << 16}, False),  # records of another length
        ({"versions": "then"}, False),
        ({"shorter": {"cudnn": 1.04}}, False),  # this one may be the fastest
        ({"shorter": {"cudnn": 1.06}}, True),
    ],
)
def test_records_decide_where_a_trial_would_time_a_part_only(
    changed: dict[str, Any], decided: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seqlen, versions = changed.get("seqlen", LONG), changed.get("versions", "now")
    made = [entry("causal, 1/2", changed.get("recorded", seqlen), slower, versions, pass_=pass_) for pass_, slower in NEAR.items()]
    shorter = changed.get("shorter", {"cudnn": 1.5})
    made += [entry("causal, 1/2", 1 << 15, slower | shorter, pass_=pass_) for pass_, slower in NEAR.items()]
    monkeypatch.setattr(measured, "entries", lambda: made)
    monkeypatch.setattr(measured, "installed_versions", lambda kernel: "now")
    three = kernels("fa3", "fa4:native", "cudnn")
    everyone = Candidates(tuple(three), tuple(three))
    monkeypatch.setattr(chooser, "candidates", lambda *_: everyone)
    asked = chooser.contest(masks.causal(seqlen), Case(seqlen, seqlen, *SHAPE), device=DEVICE)
    assert asked.is_decided == decided
    choice = chooser.settled(asked)
    if decided:
        assert choice is not None
        assert (choice.source, choice.by_pass) == ("records", {"fwd": "fa3", "bwd": "fa4:native"})
        assert "128K tokens, 64:8 heads of 128: 2 % ahead of fa4:native" in choice.why["fwd"]
    else:
        assert choice is None


def test_no_trial_times_a_kernel_that_was_skipped_as_too_slow() -> None:
    length = 1 << 17
    asked = chooser.contest(masks.full(length), Case(length, length, *SHAPE), available=lambda kernel: True, device=DEVICE)
    assert "sdpa:efficient" in {kernel.label for kernel in asked.all.all}
    assert "sdpa:efficient" not in {kernel.label for kernel in asked.contenders.all}


def test_the_nearest_records_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [
        entry("causal documents, 1/64", 32768, {"fa3": 1.0, "fa4:varlen": 1.1}),
        entry("causal documents, 1/128", 65536, {"fa3": 1.1, "fa4:varlen": 1.0}),
        entry("full documents, 1/128", 131072, {"fa3": 1.0, "fa4:varlen": 1.5}),
        entry("causal documents, 1/256", 131072, {"fa3": 1.0, "fa4:varlen": 1.5}, dtype="fp16"),
    ]
    monkeypatch.setattr(measured, "entries", lambda: made)
    wanted = shape_class(masks.causal(8), Case(1 << 17, 1 << 17, *SHAPE))._replace(mask="causal documents, 1/256")
    known = measured.evidence(DEVICE, wanted, "fwd")
    assert known == measured.Evidence(made[1], False, [made[0]])
    assert measured.evidence("another device", wanted, "fwd") is None
    assert measured.evidence(DEVICE, wanted._replace(softcap=True), "fwd") is None
    assert measured.evidence(DEVICE, wanted._replace(seqlen_q=1), "fwd") is None


def test_records_that_leave_one_kernel_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    slower = {"sdpa:flash": 1.0, "torch:plain": 3.0, "torch:chunked": 4.0}
    mask, case = masks.causal(64), Case(64, 64, 2, 1, 16, 16, "fp32")
    made = [entry("causal, 1/2", 64, slower, heads="2:1", head_dim="16", dtype="fp32", pass_=pass_) for pass_ in ("fwd", "bwd")]
    monkeypatch.setattr(measured, "entries", lambda: made)
    monkeypatch.setattr(chooser, "device_name", lambda device: DEVICE)
    choice = chooser.choose(mask, case)
    assert (choice.forward, choice.backward, choice.source) == ("sdpa:flash", "sdpa:flash", "records")
    assert (
        choice.why["fwd"]
        == f"records of {DEVICE}, causal, density near 1/2, about 64 tokens, 2:1 heads of 16: 3.0 times as fast as torch:plain"
    )
