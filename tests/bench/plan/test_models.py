"""Softcap, sinks and scale in suites, cells, keys, records and commands; and the models that name them."""

from __future__ import annotations

from typing import Any

import pytest

from longca.bench.plan.cell import fingerprint, key
from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite, check, names, to_toml
from longca.bench.plan.workload import model, with_model
from longca.cli import main
from longca.errors import BadInput
from longca.results.problem import Pass, Split
from longca.results.record import Environment, Record
from longca.results.reproduce import command
from longca.results.schema import decode_record
from longca.text import parse_dims, parse_heads
from made_cells import make_cell
from report.made import line, make_record

CELL = make_cell(
    kernel="torch", mask="causal", seqlen=64, heads_q=4, heads_kv=2, head_dim=8, head_dim_v=8, dtype="fp32", pass_=Pass.FWD,
    params=(("w", 3), ("ratio", 0.25)), documents=(60, 4), ranks=4, split=Split("usp", "2x2"),
)  # fmt: skip


def test_cells_without_them_keep_the_keys_of_older_journals() -> None:
    """The key is that of a cell with all its fields side by side, and without these."""
    before = {
        "kernel": "torch", "mask": "causal", "seqlen": 64, "heads_q": 4, "heads_kv": 2, "head_dim": 8, "head_dim_v": 8, "dtype": "fp32",
        "pass_": "fwd", "seed": 0, "params": [["w", 3], ["ratio", 0.25]], "documents": [60, 4], "distribution": None, "packing": None,
        "deterministic": False, "grad": True, "device": "cpu", "level": "kernel", "source": "random",
        "split": {"method": "usp", "ranks": 4, "grid": "2x2"},
    }  # fmt: skip
    assert key(CELL, "digest", "device", {"a": "1"}) == fingerprint(2, before, "digest", "device", {"a": "1"})


@pytest.mark.parametrize("change", [{"softcap": 50.0}, {"sinks": True}, {"scale": 0.2}])
def test_each_of_them_is_another_cell(change: dict[str, Any]) -> None:
    other = CELL.with_problem(**change)
    assert key(other, "digest", "device", {}) != key(CELL, "digest", "device", {})


def test_a_suite_hands_them_to_its_cells_and_cases() -> None:
    suite = Suite(kernels=("torch",), masks=("causal",), seqlens=("64",), softcap=30.0, sinks=True, scale=0.2)
    check(suite)
    for cell in make_cells(suite, ["torch"], "cpu"):
        case = cell.case(cell.problem.build_mask())
        assert (case.softcap, case.sinks, case.scale) == (30.0, True, 0.2)
    assert "softcap = 30.0\nsinks = true\nscale = 0.2\n" in to_toml(suite)
    with pytest.raises(BadInput, match=r"softcap: Expected `float` >= 0.0, not -1.0"):
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


def record(**fields: Any) -> Record:
    return decode_record(line(make_record(**fields)).encode())


def test_the_command_asks_for_them_again() -> None:
    words = command(record(softcap=50.0, sinks=True, scale=144**-0.5), Environment(), {})
    assert f"--softcap 50.0 --scale {144**-0.5!r} --sinks" in words
    assert "--softcap" not in command(record(), Environment(), {})


def test_unknown_models_are_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--kernels", "torch", "--model", "gemma2-27"]) == 2
    assert "unknown model 'gemma2-27'; did you mean 'gemma2-27b'? `longca ls models` lists all." in capsys.readouterr().err


def test_every_layer_is_local_or_global() -> None:
    for name in names("models"):
        found = model(name)
        assert found.count("local") + found.count("global") == found.layers
    gemma = model("gemma3-27b")
    assert [gemma.layers_of(mask) for mask in ("sliding_window_causal", "causal_document")] == [gemma.count("local"), gemma.count("global")]
    assert model("mistral-7b").layers_of("causal_document") == model("mistral-7b").layers, "no layer is global"
