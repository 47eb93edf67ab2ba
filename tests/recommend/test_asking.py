"""Questions of `longca recommend` that make no sense are refused, and no run is advised that could not answer."""

from pathlib import Path

import pytest

from journals import Write
from longca.api.recommend import best
from longca.cli import main
from longca.errors import BadInput
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


def test_an_unknown_cluster_is_refused_with_the_nearest_name_and_all_names(capsys: Captured) -> None:
    known = "(known are: a100-ib, b200-ib, cpu-gloo, gb200-nvl72, h100-ib, h200-ib, h200-shared-8)"
    question = ["recommend", "--mask", "causal", "--seqlen", "8K", "--gpus", "64", "--cluster"]
    assert main([*question, "h100ib"]) == 2
    assert capsys.readouterr().err == f"longca: unknown cluster 'h100ib'; did you mean 'h100-ib' {known}?\n"
    assert main([*question, "foo"]) == 2
    assert capsys.readouterr().err == f"longca: unknown cluster 'foo'; {known[1:-1]}.\n"


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
