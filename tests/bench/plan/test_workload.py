"""A user's own training steps, and the shapes of models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from bench.plan.test_cells import SMALL
from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite, check, names, to_toml
from longca.bench.plan.workload import model, read_workload, with_model
from longca.cli import main
from longca.errors import BadInput
from longca.results.problem import Pass
from longca.text import parse_dims, parse_heads


def test_a_workload_becomes_cells(tmp_path: Path) -> None:
    file = tmp_path / "steps.jsonl"
    steps = [{"mask": "causal_document", "documents": [300, 212]}, {"mask": "sliding_window", "seqlen": 512, "params": {"w": 9}}]
    file.write_text("".join(json.dumps(step) + "\n" for step in [*steps, steps[0]]))
    cells = make_cells(SMALL, ["torch"], "cpu", read_workload(file))
    assert [(cell.problem.mask, cell.problem.seqlen, cell.problem.pass_) for cell in cells] == [
        (m, 512, w) for m in ("causal_document", "sliding_window") for w in (Pass.FWD, Pass.BWD)
    ]
    assert cells[0].problem.build_mask().documents == (300, 212)
    assert cells[2].problem.build_mask().params == {"w": 9}


def test_a_models_window_counts_its_own_key() -> None:
    shaped = with_model(replace(SMALL, masks=("sliding_window_causal",), seqlens=("8K",)), "mistral-7b")
    mask = make_cells(shaped, ["torch"], "cpu")[0].problem.build_mask()
    starts, ends = mask.row_intervals()
    assert (ends - starts).max() == 4096


EXAMPLE = '{"mask": "causal_document", "documents": [353, 7839]}'
WRONG = [
    (
        "{",
        f"FILE line 1 is not JSON: Input data was truncated; write an object such as {EXAMPLE}.",
    ),
    ("", f"the workload FILE has no steps; write one JSON object per training step, such as {EXAMPLE}."),
    ('{"mask": "causl", "seqlen": 8}', "FILE line 1: unknown mask 'causl'; did you mean 'causal'?"),
    ('{"mask": "causal"}', "FILE line 1 needs a seqlen of 1 or more, or documents."),
    (
        '{"mask": "causal", "seqlen": 8, "lengths": [8]}',
        "unknown setting in FILE line 1: 'lengths'; known are: mask, seqlen, documents, distribution, packing, params, seed.",
    ),
    ('{"mask": "full_document", "documents": [3, 0]}', "FILE line 1: documents[1]: Expected `int` >= 1."),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_a_wrong_workload_is_refused_with_its_line(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text(line + "\n")
    with pytest.raises(BadInput) as caught:
        read_workload(file)
    assert str(caught.value) == message.replace("FILE", str(file))


def test_a_run_says_that_it_cuts_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "steps.jsonl"
    file.write_text('{"mask": "causal_document", "seqlen": 30, "documents": [20, 20]}\n{"mask": "causal", "seqlen": 40}\n')
    assert main(["run", "--workload", str(file), "--kernels", "torch", "--device", "cpu", "--dry-run"]) == 0
    assert (
        "note: 1 step of the workload has more tokens of documents than its seqlen, and what is beyond is cut off"
        in capsys.readouterr().err
    )
    (tmp_path / "lengths").write_text("20 20")
    asked = ["--masks", "causal_document", "--lengths", str(tmp_path / "lengths"), "--seqlens", "30", "--kernels", "torch"]
    assert main(["run", *asked, "--device", "cpu", "--dry-run"]) == 0
    assert "what is beyond the sequence (30 tokens) is cut off" in capsys.readouterr().err


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
    assert (gemma.softcap, gemma.scale, gemma.window, gemma.layer_pattern) == (50, pytest.approx(144**-0.5), 4096, "1 local, 1 global")
    assert (oss.heads, oss.head_dim, oss.sinks, oss.window) == ("64:8", "64", True, 128)
    for mask in ("sliding_window_causal", "sliding_window_causal_document", "causal_document & sliding_window"):
        assert oss.params_of(mask) == {"w": 127}
    for mask in ("causal", "sliding_window(w=9)", "sink_window_causal", "sliding_window & sink_window_causal"):
        assert oss.params_of(mask) == {}
    assert model("llama3-8b").params_of("sliding_window") == {}
    assert model("gemma3-27b").layer_pattern == "5 local, 1 global"
    assert model("llama3-8b").layer_pattern == "all global"
