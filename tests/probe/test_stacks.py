"""benchmarks/probe_stacks.py: its tiny models are honest, and rows of one device replace no others."""

import json
from pathlib import Path

import pytest

import longca
from longca.plugins import import_file

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "probe_stacks.py"


@pytest.mark.slow
@pytest.mark.parametrize("stack", ["longca_plan_torch", "torch_flex"])
def test_a_tiny_model_honours_documents_on_two_ranks(stack):
    stacks = import_file(SCRIPT, "stack")
    assert longca.probe(
        f"{SCRIPT}:{stack}", "causal_document", stacks.SEQLEN, layers=stacks.LAYERS, ranks=2, vocab=stacks.VOCAB, documents=stacks.DOCUMENTS
    ).ok


def test_rows_of_the_other_device_stay(tmp_path):
    stacks, out = import_file(SCRIPT, "stack"), tmp_path / "probe" / "rows.jsonl"
    stacks.write([{"device": "cuda", "stack": "one", "text": "old"}], out)
    stacks.write([{"device": "cpu", "stack": "one", "text": ""}], out)
    stacks.write([{"device": "cuda", "stack": "one", "text": "new"}], out)
    assert [(row["device"], row["text"]) for row in map(json.loads, out.read_text().splitlines())] == [("cpu", ""), ("cuda", "new")]


def test_without_a_gpu_a_row_says_so(monkeypatch):
    monkeypatch.setattr("longca.devices.gpus", list)
    (row,) = import_file(SCRIPT, "stack").probe("torch_sdpa", "causal", "cuda")
    assert (row["verdict"], row["device"]) == ("not probed", "cuda")
    assert row["text"].startswith("no GPU was found")
