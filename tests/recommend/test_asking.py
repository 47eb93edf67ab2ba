"""Questions of `longca recommend`: what is refused, which device and which window of a model are meant."""

import json
from pathlib import Path
from typing import Any

import pytest

import longca
from journals import Write
from longca.api.recommend import best
from longca.bench.plan.suite import names
from longca.bench.plan.workload import model
from longca.cli import main
from longca.errors import BadInput
from longca.recommend.answer import ModelNote
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.recommend.shipped import load
from longca.text import parse_memory
from report.made import around, blocks, kernel, split

Captured = pytest.CaptureFixture[str]


def asked(folder: Path, *more: str) -> int:
    words = {"--mask": "causal", "--seqlen": "8K"} | dict(zip(more[::2], more[1::2], strict=True))
    return main(["recommend", *(word for pair in words.items() for word in pair), "--results", str(folder)])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--source", "nsa"], "the source nsa is for block patterns, and none is asked for; give --mask uniform_block or "),
        (["--seqlen", "1000G"], "q, k and v of 1000G tokens take "),
        (["--seqlen", "8", "--gpus", "9"], "9 GPUs cannot share 8 tokens; ask for fewer GPUs."),
        (["--gpus", "0"], "a question needs at least one GPU, not 0."),
        (["--calls-per-plan", "0"], "--calls-per-plan is the number of calls that one plan serves, 1 or more, not 0."),
        (["--memory", "80"], "'80' is not an amount of memory; write a number over 0 and its unit, such as 80GiB, 80G or 512M."),
        (["--pass", "forward"], "unknown pass 'forward'; did you mean 'fwd'?"),
    ],
)
def test_what_makes_no_sense_is_refused(write: Write, capsys: Captured, given: list[str], said: str) -> None:
    assert asked(write("made", [kernel("fa4", around(1.0))]), *given) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"longca: {said}")
    assert shown.out == ""


def test_memory_as_one_writes_it() -> None:
    assert [parse_memory(text) for text in ("80GiB", "80 G", "80gib", "512M", "0.5K")] == [80 << 30, 80 << 30, 80 << 30, 512 << 20, 512]
    assert parse_memory("0.3GiB") == int(0.3 * 2**30)
    assert [parse_memory(text) for text in ("80GB", "80 gb", "1.5MB", "3kB")] == [80 * 10**9, 80 * 10**9, 1500000, 3000]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--gpus", "1"], "say how many with --gpus."),
        (["--mask", "uniform_block"], "no block patterns; leave it out."),
        (["--device", "H200", "--calls-per-plan", "1"], "--device and --calls-per-plan are for measured records"),
    ],
)
def test_what_no_simulation_answers_is_refused_beside_a_cluster(flags: list[str], said: str, capsys: Captured) -> None:
    assert main(["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "64", "--cluster", "h100-ib", *flags]) == 2
    assert said in capsys.readouterr().err


def test_methods_that_refuse_block_patterns_are_not_worth_measuring(write: Write) -> None:
    about = {"mask": "uniform_block", "params": {"b": 64, "ratio": 0.5, "heads": 8}}
    found = load([write("made", [split("ulysses", 1.0, ranks=8, **about), blocks("flex", around(1.0))])])
    unmeasured = recommend(Question.parse("uniform_block", "8K", gpus=8), found).unmeasured
    assert "ring_allgather" in unmeasured
    assert not {"magi", "ring_p2p", "ulysses"} & set(unmeasured)
    dense = load([write("dense", [split("usp", 1.0, ranks=128)])])
    unmeasured = recommend(Question.parse("causal", "8K", gpus=128), dense).unmeasured
    assert "magi" in unmeasured
    assert "ulysses" not in unmeasured  # 128 ranks cannot share 64 heads


def test_an_empty_folder_name_is_refused(write: Write) -> None:
    for results in ("", [""], [write("somewhere", [kernel("flex", [1.0])]), ""]):
        with pytest.raises(BadInput, match="give the folder of a journal"):
            best("causal", "8K", results=results)


NAMES = "(NVIDIA B200, NVIDIA H200)"


@pytest.fixture
def words(write: Write) -> list[str]:
    return ["recommend", "--mask", "causal", "--results", *map(str, two(write)), "--seqlen"]


def two(write: Write) -> list[Path]:
    """Journals of an H200 and of a B200."""
    folders = [write("a", [kernel("fa4", around(1.0))]), write("b", [kernel("flex", around(2.0), env="x", mfu=None)])]
    (folders[1] / "env.json").write_text(json.dumps({"x": {"device": "NVIDIA B200", "device_kind": "cuda"}}))
    return folders


@pytest.mark.parametrize("seqlen", ["8K", "10K"])  # exactly, and as the nearest answer
def test_each_device_has_an_answer_below_its_name(words: list[str], capsys: Captured, seqlen: str) -> None:
    assert main([*words, seqlen]) == 0
    lines = capsys.readouterr().out.splitlines()
    places = [lines.index(f"{name}:") for name in ("NVIDIA B200", "NVIDIA H200")]
    assert places == sorted(places)
    assert [lines[place + 1].split(":")[0] for place in places] == ["use flex", "use fa4"]
    assert lines[places[1] - 1] == ""
    assert main([*words, seqlen, "--device", "NVIDIA B200"]) == 0
    alone = capsys.readouterr().out.splitlines()
    assert alone == lines[1 : places[1] - 1], "the same as for this device alone"


@pytest.mark.parametrize("output", [["--json"], ["--code"], ["--export", "answer.json"]])
def test_what_holds_one_answer_needs_the_device(
    words: list[str], capsys: Captured, output: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, "8K", *output]) == 2
    shown = capsys.readouterr()
    assert shown.err == f"longca: records of several devices answer this {NAMES}; choose one with --device.\n"
    assert shown.out == ""
    assert main([*words, "8K", *output, "--device", "H200"]) == 0


def test_in_python_it_stays_an_error(write: Write) -> None:
    folders = two(write)
    for ask in (longca.recommend, longca.best):
        with pytest.raises(BadInput, match="choose one with --device"):
            ask("causal", "8K", results=folders)
    assert longca.best("causal", "8K", results=folders, device="B200").kernel == "flex"


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
