"""A user's own training steps, and the shapes of models."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from longca.bench.plan.cells import make_cells
from longca.bench.plan.suite import Suite
from longca.bench.plan.workload import read_workload, with_model
from longca.cli import main
from longca.errors import BadInput
from longca.results.problem import Pass

SMALL = Suite(kernels=("torch",), masks=("causal", "causal_document"), seqlens=("1K", "512"), heads=("4:2",), head_dims=("32",))


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
