"""benchmarks/probe_stacks.py: its tiny models are honest."""

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
