"""Kernels that an answer does not compare, for want of a record, and that are the fastest at another length: the answer names them."""

import json
from pathlib import Path
from typing import Any

import pytest

from journals import Write
from longca.cli import main
from longca.recommend.answer import Answer, recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from report.made import Record, around, kernel, split


def made(name: str, tokens: int, ms: float, which: str = "fwd+bwd", **fields: Any) -> Record:
    return kernel(name, around(ms), which, seqlen=tokens * 1024, **fields)


SHORTER = [made("fa3", 8, 1.0), made("cudnn", 8, 0.5)]
HERE = made("fa3", 16, 4.0)
SENTENCE = "cudnn is not compared here, for want of a record; at 8K tokens it is the fastest, and fa3 has 0.50 times the speed."


def answer(folder: Path, seqlen: str = "16K", mask: str = "causal", **more: Any) -> Answer:
    return recommend(Question.parse(mask, seqlen, heads="64:8", **more), load([folder]))


def named(folder: Path, seqlen: str = "16K", **more: Any) -> tuple[str, ...]:
    found = answer(folder, seqlen, **more)
    assert found.best is not None
    return found.elsewhere.kernels if found.elsewhere else ()


def test_the_heading_names_it(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [*SHORTER, made("flex", 8, 0.9), HERE])
    words = ["recommend", "--mask", "causal", "--seqlen", "16K", "--results", str(folder)]
    assert main(words) == 0
    assert capsys.readouterr().out.splitlines()[2] == SENTENCE
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["fastest_elsewhere"] == {"seqlen": 8192, "kernels": ["cudnn"], "ratio": pytest.approx(0.5)}


def test_several_are_named_together(write: Write) -> None:
    found = answer(write("made", [*SHORTER, made("flex", 8, 0.5), HERE])).elsewhere
    assert found is not None
    assert found.sentence().startswith("cudnn, flex are not compared here, for want of a record; at 8K tokens they are the fastest")


@pytest.mark.parametrize("ms", [0.98, 0.95], ids=["within 3 %", "within the noise"])
def test_equal_kernels_are_not_named(write: Write, ms: float) -> None:
    noisy = [kernel(name, [0.9 * at, at, at, 1.1 * at], seqlen=8192) for name, at in (("fa3", 1.0), ("cudnn", ms))]
    assert named(write("made", [*noisy, HERE])) == ()


@pytest.mark.parametrize(
    "here",
    [
        made("cudnn", 16, 9.0),
        made("cudnn", 16, 9.0, status="oom", reason="no memory"),
        made("cudnn", 16, 0.1, "fwd"),
        made("cudnn", 16, 0.1, mask_digest="d7", seed=7),
    ],
    ids=["slower", "failed", "one pass", "another seed"],
)
def test_a_kernel_with_a_record_is_not_named(write: Write, here: Record) -> None:
    assert named(write("made", [*SHORTER, HERE, here])) == ()


def test_a_variant_that_a_record_ran_is_not_named(write: Write) -> None:
    """Where several variants answer to one name, they are one line."""
    here = [made("fa4:native", 16, 9.0, asked="fa4"), made("fa4:bands", 16, 9.0, asked="fa4", mask_digest="d7", seed=7)]
    assert named(write("made", [made("fa3", 8, 1.0), made("fa4:bands", 8, 0.5), HERE, *here])) == ()


def test_the_nearest_length_with_both_decides(write: Write) -> None:
    """At 16K there is no fa3, at 64K nothing else."""
    lengths = [*(made("fa3", tokens, tokens / 8) for tokens in (4, 8, 32, 64)), made("cudnn", 16, 0.1)]
    assert named(write("slower", [*lengths, made("cudnn", 4, 0.1), made("cudnn", 8, 9.0)]), "32K") == ()
    assert named(write("faster", [*lengths, made("cudnn", 4, 9.0), made("cudnn", 8, 0.1)]), "32K") == ("cudnn",)


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_equally_near_lengths_the_longer_decides(write: Write, order: int) -> None:
    slower = [made("fa3", 32, 9.0), made("cudnn", 32, 19.0)]
    assert named(write("made", [HERE, *[*SHORTER, *slower][::order]])) == ()


@pytest.mark.parametrize(
    "other",
    [{"env": "other"}, {"dtype": "fp16"}, {"heads_q": 32}, {"simulated": "h100-ib"}],
    ids=["device", "dtype", "heads", "simulated"],
)
def test_only_records_that_differ_in_length_count(write: Write, other: dict[str, Any]) -> None:
    others = [record | other for record in SHORTER]
    folder = write("made", [*others, HERE])
    environments = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps(environments | {"other": environments["e"] | {"device": "NVIDIA H100"}}))
    assert named(folder) == ()


def test_planning_and_memory_count_as_in_the_answer(write: Write) -> None:
    planned = [record | {"plan_ms": ms} for record, ms in ((SHORTER[0], 0.1), (SHORTER[1], 5.0), (HERE, 0.1))]
    folder = write("planned", planned)
    assert named(folder) == ("cudnn",)
    assert named(folder, calls_per_plan=1) == ()
    large = [record | {"peak_gib": gib} for record, gib in ((SHORTER[0], 1.0), (SHORTER[1], 50.0), (HERE, 1.0))]
    folder = write("large", large)
    assert named(folder) == ("cudnn",)
    assert named(folder, memory="20GiB") == ()


def test_a_kernel_that_does_not_take_the_mask_is_not_named(write: Write) -> None:
    """A window over the whole sequence at 1K tokens is the causal mask, which sdpa:flash takes; at 4K it is none."""
    window = {"mask": "sliding_window_causal", "params": {"w": 1024}}
    records = [made(name, tokens, ms, **window) for name, tokens, ms in (("fa3", 1, 1.0), ("sdpa:flash", 1, 0.1), ("fa3", 4, 1.0))]
    folder = write("made", records)
    assert named(folder, "4K", mask="sliding_window_causal") == ()
    assert named(write("taken", [*records, made("cudnn", 1, 0.05, **window)]), "4K", mask="sliding_window_causal") == ("cudnn",)


def test_on_a_cpu_kernels_are_asked_about_a_cpu(write: Write) -> None:
    """On a GPU, sdpa:flash takes no window."""
    window = {"mask": "sliding_window_causal", "params": {"w": 1024}}
    times = (("torch:plain", 4, 1.0), ("sdpa:flash", 4, 0.1), ("torch:plain", 8, 4.0))
    folder = write("made", [made(name, tokens, ms, **window) for name, tokens, ms in times], {"device": "AMD EPYC", "device_kind": "cpu"})
    assert named(folder, "8K", mask="sliding_window_causal") == ("sdpa:flash",)


def test_a_nearest_answer_names_them_too(write: Write) -> None:
    """20K tokens are scaled from 16K, which has no cudnn."""
    folder = write("made", [*SHORTER, HERE])
    assert answer(folder, "20K").nearest is not None
    assert named(folder, "20K") == ("cudnn",)


def test_beside_a_pair_nothing_is_named(write: Write) -> None:
    """The pair may be as fast as what is not compared."""
    halves = [
        made(name, 16, ms, which)
        for name, which, ms in (("fa3", "fwd", 1.0), ("fa3", "bwd", 3.0), ("fa4:bands", "fwd", 3.0), ("fa4:bands", "bwd", 1.0))
    ]
    found = answer(write("made", [*SHORTER, *halves]))
    assert found.pair is not None
    assert found.elsewhere is None


def test_the_records_of_a_plainer_mask_name_nothing(write: Write) -> None:
    """At other lengths, the mask that was asked for is another."""
    found = answer(write("made", [*SHORTER, HERE]), mask="sliding_window_causal", params={"w": 16383})
    assert (found.same_as, found.elsewhere) == ("causal", None)


@pytest.mark.parametrize(("tokens", "expected"), [(64, ("cudnn",)), (128, ())])
def test_a_length_far_away_says_nothing(write: Write, tokens: int, expected: tuple[str, ...]) -> None:
    assert named(write("made", [*SHORTER, made("fa3", tokens, 9.0)]), f"{tokens}K") == expected
    longer = [made("fa3", tokens, 1.0), made("cudnn", tokens, 0.5)]
    assert named(write("longer", [*longer, made("fa3", 8, 1.0)]), "8K") == expected


def test_methods_on_many_gpus_are_not_compared_so(write: Write) -> None:
    records = [split("usp", 1.0, seqlen=8192), split("magi", 0.5, seqlen=8192), split("usp", 4.0, seqlen=16384)]
    assert named(write("made", records), gpus=64) == ()
