"""Questions with `--model`: a window of the model that the mask does not have is said."""

import json
import shlex

import pytest

import longca
from journals import Write
from longca.bench.plan.suite import names
from longca.bench.plan.workload import model
from longca.cli import main
from report.made import around, kernel

WINDOWED = [name for name in names("models") if model(name).window]


def window_remark(name: str, mask: str, seqlen: int | str, **more: object) -> str:
    remarks = longca.recommend(mask, seqlen, model=name, **more).answer.remarks
    return " ".join(remark for remark in remarks if "window" in remark)


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
def test_a_window_that_the_mask_does_not_have_is_said(mask: str, windowed: str) -> None:
    said = window_remark("gpt-oss-120b", mask, "8K")
    assert said.startswith(f"gpt-oss-120b has a window of 128 keys in 18 of its 36 layers, which {mask} does not have; ")
    assert said.endswith(f" with --mask {shlex.quote(windowed)}.")
    own = "w=127 is the window of 128 of gpt-oss-120b: models count the token itself, w does not."
    assert window_remark("gpt-oss-120b", windowed, "8K") == ("" if "w=127" in windowed else own), "the mask that is named has the window"


@pytest.mark.parametrize("name", WINDOWED)
def test_the_layers_with_the_window_are_counted(name: str) -> None:
    shape = model(name)
    assert shape.window is not None
    kinds = shape.pattern.split()
    local = sum(kinds[layer % len(kinds)] == "local" for layer in range(shape.layers))
    layers = f"all of its {shape.layers}" if local == shape.layers else f"{local} of its {shape.layers}"
    said = window_remark(name, "causal", shape.window + 1)
    assert f"{name} has a window of {shape.window} keys in {layers} layers" in said


def test_nothing_is_said_of_a_window_that_hides_nothing() -> None:
    assert window_remark("mistral-7b", "causal", 4096) == "", "the window sees all of the sequence"
    assert window_remark("mistral-7b", "sliding_window_causal(w=512)", "8K") == "", "the mask shows less"
    assert window_remark("mistral-7b", "sliding_window_causal", "8K", params={"w": 6000}) == "", "that is the user's window"
    assert window_remark("llama3-8b", "causal", "8K") == "", "it has no window"
    longest = max(longca.masks.build("causal_document", "8K", seed=0).documents or ())
    assert (window_remark("mistral-7b", "causal_document", "8K", exact=True, dtype="fp64") == "") is (longest <= 4096)


def test_the_remark_is_in_the_text_and_in_the_json(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [kernel("fa4:bands", around(1.0), heads_q=32)])
    words = ["recommend", "--model", "mistral-7b", "--mask", "causal", "--results", str(folder), "--exact", "--seqlen"]
    said = "mistral-7b has a window of 4096 keys in all of its 32 layers, which causal does not have; "
    for seqlen, code in (("8K", 0), ("16K", 4)):
        assert main([*words, seqlen]) == code
        assert f"\n{said}ask for such a layer with --mask sliding_window_causal.\n" in capsys.readouterr().out
    assert main([*words, "8K", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remarks"][0].startswith(said)
