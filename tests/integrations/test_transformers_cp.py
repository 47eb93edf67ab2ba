"""Hugging Face models whose tokens are shared by four gloo ranks: the loss and gradients of one rank with eager attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("transformers", reason="pip install 'longca[transformers]'")
from longca.processes.pool import Pool


@pytest.fixture(scope="module")
def ranks() -> Iterator[Pool]:
    with Pool(4) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        {"name": "gpt_oss", "form": "positions"},
        {"name": "gpt_oss", "form": "edges", "recompute": True},
        {"name": "gemma2", "form": "entries"},
        {"name": "mistral", "form": "positions", "method": "ring_p2p"},
        {"name": "qwen3", "form": "entries", "method": "usp"},
    ],
    ids=lambda case: "-".join(map(str, case.values())),
)
def test_losses_and_gradients_are_those_of_one_rank(ranks: Pool, case: dict[str, Any]) -> None:
    for answer in ranks.run("integrations.cp_jobs:loss_and_gradients", case, 120):
        assert answer["shared"] == pytest.approx(answer["alone"], abs=2e-6)
        assert answer["gradients"] < 2e-6
        assert answer["summary"].startswith(case.get("method", "magi"))


@pytest.mark.slow
def test_batches_that_cannot_be_planned_are_refused(ranks: Pool) -> None:
    sentences = {
        "padding": "this batch has padding",
        "documents": "have different documents",
        "edges": "must rise from 0 to the 40 tokens, not from 0 to 30",
        "no ids": "has input_ids [batch, tokens]",
        "heads": "cannot be divided over tensor_parallel=3",
    }
    for heard in ranks.run("integrations.cp_jobs:misuse", {}, 60):
        assert {case: sentence in heard[case] for case, sentence in sentences.items()} == dict.fromkeys(sentences, True), heard
