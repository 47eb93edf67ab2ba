"""Softcap, sinks and scale in suites, cells, keys, records and commands; and the models that name them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from longca.bench.plan.cell import LATER_FIELDS, Cell, fingerprint, key
from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite, check, names, to_toml
from longca.bench.plan.workload import model, with_model
from longca.cli import main
from longca.errors import BadInput
from longca.recommend.question import Question
from longca.recommend.words import describe
from longca.results.naming import Setting
from longca.results.problem import Pass, Split
from longca.results.record import SCHEMA, Environment, Record
from longca.results.reproduce import command
from longca.text import parse_dims, parse_heads
from made_cells import make_cell

CELL = make_cell(
    kernel="torch", mask="causal", seqlen=64, heads_q=4, heads_kv=2, head_dim=8, head_dim_v=8, dtype="fp32", pass_=Pass.FWD,
    params=(("w", 3), ("ratio", 0.25)), documents=(60, 4), ranks=4, split=Split("usp", "2x2"),
)  # fmt: skip


def test_cells_without_them_keep_the_keys_of_older_journals() -> None:
    """The key is still that of a cell which has no such fields."""
    old = [(field.name, field.type) for field in msgspec.structs.fields(Cell) if field.name not in LATER_FIELDS]
    before = msgspec.defstruct("Cell", old, frozen=True, kw_only=True)(**{name: getattr(CELL, name) for name, _ in old})
    assert key(CELL, "digest", "device", {"a": "1"}) == fingerprint(SCHEMA, before, "digest", "device", {"a": "1"})


@pytest.mark.parametrize("change", [{"softcap": 50.0}, {"sinks": True}, {"scale": 0.2}])
def test_each_of_them_is_another_cell(change: dict[str, Any]) -> None:
    other = msgspec.structs.replace(CELL, **change)
    assert key(other, "digest", "device", {}) != key(CELL, "digest", "device", {})


def test_a_suite_hands_them_to_its_cells_and_cases() -> None:
    suite = Suite(kernels=("torch",), masks=("causal",), seqlens=("64",), softcap=30.0, sinks=True, scale=0.2)
    check(suite)
    for cell in make_cells(suite, ["torch"], "cpu"):
        case = cell.case(cell.problem.build_mask())
        assert (case.softcap, case.sinks, case.scale) == (30.0, True, 0.2)
    assert "softcap = 30.0\nsinks = true\nscale = 0.2\n" in to_toml(suite)
    with pytest.raises(BadInput, match=r"Expected `float` >= 0.0 - at `\$.softcap`"):
        check(suite.changed(softcap=-1.0))


@pytest.mark.parametrize("name", names("models"))
def test_every_model_can_be_run(name: str) -> None:
    shape, suite = model(name), with_model(Suite(), name)
    check(suite)
    assert (suite.softcap, suite.sinks, suite.scale) == (shape.softcap, shape.sinks, shape.scale)
    parse_heads(shape.heads)
    parse_dims(shape.head_dim)
    assert set(shape.pattern.split()) <= {"local", "global"}
    assert ("local" in shape.pattern) == (shape.window is not None)


def test_models_with_more_than_heads() -> None:
    gemma, oss = model("gemma2-27b"), model("gpt-oss-120b")
    assert (gemma.heads, gemma.head_dim, gemma.softcap, gemma.window, gemma.layer_pattern) == (
        "32:16",
        "128",
        50,
        4096,
        "1 local, 1 global",
    )
    assert gemma.scale == pytest.approx(144**-0.5)
    assert (oss.heads, oss.head_dim, oss.sinks, oss.window) == ("64:8", "64", True, 128)
    for mask in ("sliding_window_causal", "sliding_window_causal_document", "causal_document & sliding_window"):
        assert oss.params_of(mask) == {"w": 127}
    for mask in ("causal", "sliding_window(w=9)", "sink_window_causal", "sliding_window & sink_window_causal"):
        assert oss.params_of(mask) == {}
    assert model("llama3-8b").params_of("sliding_window") == {}
    assert model("gemma3-27b").layer_pattern == "5 local, 1 global"
    assert model("llama3-8b").layer_pattern == "all global"


def test_models_are_listed_with_what_they_have(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls", "models", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["gemma2-27b"]["softcap"] == 50
    assert listed["gpt-oss-120b"]["sinks"] is True
    assert listed["llama3-8b"] | {"window": None, "softcap": None, "sinks": False, "scale": None} == listed["llama3-8b"]
    assert main(["ls", "models"]) == 0
    assert "softcap" in capsys.readouterr().out


def record(**fields: Any) -> Record:
    known: dict[str, Any] = dict(
        status="unsupported", schema=SCHEMA, key="k", env="e", level="kernel", kernel="torch", asked="torch", mask="causal", params={},
        mask_digest="d", seed=0, seqlen=64, heads_q=4, heads_kv=2, head_dim=8, head_dim_v=8, dtype="fp32", deterministic=False,
    )  # fmt: skip
    return msgspec.convert(known | {"pass": "fwd"} | fields, Record)


def test_records_before_them_are_read_as_without() -> None:
    old = record()
    assert (old.problem.softcap, old.problem.sinks, old.problem.scale) == (0.0, False, 0.0)


def test_the_command_asks_for_them_again() -> None:
    words = command(record(softcap=50.0, sinks=True, scale=144**-0.5), Environment(), {})
    assert f"--softcap 50.0 --scale {144**-0.5!r} --sinks" in words
    assert "--softcap" not in command(record(), Environment(), {})


def test_titles_name_them_where_they_are_not_the_usual_ones() -> None:
    plain = Setting("H200", "kernel", 4, 2, 8, 8, "bf16", False)
    assert plain.title == "H200 · kernel · 4:2 heads of 8 · bf16"
    assert msgspec.structs.replace(plain, softcap=50.0, sinks=True).title == "H200 · kernel · 4:2 heads of 8 · bf16 · softcap 50 · sinks"


def test_a_question_about_them_is_not_answered_by_records_without() -> None:
    question = Question.parse("causal", "8K", softcap=50.0, sinks=True)
    assert "softcap 50, sinks" in describe(question)
    with pytest.raises(BadInput, match=r"a softcap must be a positive number, or 0 for none, not -3\.0"):
        Question.parse("causal", "8K", softcap=-3.0)


@pytest.mark.parametrize("flags", [["--model", "gpt-oss-120b"], ["--softcap", "50"]])
def test_recommend_takes_models_and_says_what_to_run(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--mask", "sliding_window_causal", "--seqlen", "8K", *flags]) == 0
    out = capsys.readouterr().out
    assert ("--sinks" if "--model" in flags else "--softcap 50.0") in out
    assert ("w=127" in out) == ("--model" in flags)


def test_unknown_models_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["verify"], ["recommend", "--mask", "causal", "--seqlen", "8K"], ["run", "--kernels", "torch"]):
        assert main([*verb, "--model", "gemma2-27"]) == 2
        assert "unknown model 'gemma2-27'; did you mean 'gemma2-27b'? `longca ls models` lists all." in capsys.readouterr().err


def test_every_layer_is_local_or_global() -> None:
    for name in names("models"):
        found = model(name)
        assert found.count("local") + found.count("global") == found.layers
    gemma = model("gemma3-27b")
    assert [gemma.layers_of(mask) for mask in ("sliding_window_causal", "causal_document")] == [gemma.count("local"), gemma.count("global")]
    assert model("mistral-7b").layers_of("causal_document") == model("mistral-7b").layers, "no layer is global"
