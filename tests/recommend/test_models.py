"""Questions with `--model`: the window of the model beside the mask that is asked for."""

from typing import Any

import pytest

import longca
from journals import Write
from longca.bench.plan.suite import names
from longca.bench.plan.workload import model
from longca.recommend.answer import ModelNote
from report.made import around, kernel

WINDOWED = [name for name in names("models") if model(name).window]


def note_of(name: str, mask: str, seqlen: int | str, **more: Any) -> ModelNote:
    note = longca.recommend(mask, seqlen, model=name, **more).answer.model
    assert note is not None
    return note


@pytest.mark.parametrize(
    ("mask", "windowed"),
    [
        ("causal", "sliding_window_causal"),
        ("full", "sliding_window"),
        ("causal_document", "sliding_window_causal_document"),
        ("share_question", "share_question & sliding_window(w=127)"),
        ("causal_document | full_document", "(causal_document | full_document) & sliding_window(w=127)"),
        ("sink_window_causal", "sliding_window_causal"),  # a window hides its sinks
    ],
)
def test_a_window_that_the_mask_does_not_have(mask: str, windowed: str) -> None:
    note = note_of("gpt-oss-120b", mask, "8K")
    assert (note.window, note.windowed_mask, note.local_layers, note.layers) == (128, windowed, 18, 36)
    own = note_of("gpt-oss-120b", windowed, "8K")
    assert (own.window, own.windowed_mask) == (None if "w=127" in windowed else 128, None), "the mask that is named has the window"


@pytest.mark.parametrize("name", WINDOWED)
def test_the_layers_with_the_window_are_counted(name: str) -> None:
    shape = model(name)
    assert shape.window is not None
    kinds = shape.pattern.split()
    local = sum(kinds[layer % len(kinds)] == "local" for layer in range(shape.layers))
    note = note_of(name, "causal", shape.window + 1)
    assert (note.window, note.local_layers, note.layers) == (shape.window, local, shape.layers)


def test_a_window_that_hides_nothing_is_none() -> None:
    assert note_of("mistral-7b", "causal", 4096).window is None, "the window sees all of the sequence"
    assert note_of("mistral-7b", "sliding_window_causal(w=512)", "8K").window is None, "the mask shows less"
    assert note_of("mistral-7b", "sliding_window_causal", "8K", params={"w": 6000}).window is None, "that is the user's window"
    assert note_of("llama3-8b", "causal", "8K").window is None, "it has no window"
    longest = max(longca.masks.build("causal_document", "8K", seed=0).documents or ())
    assert (note_of("mistral-7b", "causal_document", "8K", exact=True, dtype="fp64").window is None) is (longest <= 4096)


def test_the_window_is_in_the_json(write: Write) -> None:
    folder = write("made", [kernel("fa4:bands", around(1.0), heads_q=32)])
    found = longca.recommend("causal", "8K", model="mistral-7b", results=folder).answer
    assert found.to_json()["model"]["windowed_mask"] == "sliding_window_causal"
