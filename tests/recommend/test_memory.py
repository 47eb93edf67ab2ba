"""Memory of recommended kernels: that of the device and that of `--memory` both limit it, for measured and for predicted figures."""

import pytest

from journals import Write
from longca.cli import main
from longca.recommend.question import Question
from longca.recommend.rank import NO_RECORD, recommend
from longca.recommend.shipped import load
from longca.results.words import excluded
from recommend.cells import answer
from report.made import around, kernel, split

MIB = {"gpu_memory_mib": "81920"}  # a text, as the driver's tool gives it


def inputs_gib(seqlen: int) -> float:
    """q, k, v and dout of 64:8 heads of 128 in bf16."""
    return seqlen * (2 * 64 + 2 * 8) * 128 * 2 / 2**30


DEVICE = "80 GiB of the NVIDIA H200"


@pytest.mark.parametrize(
    ("memory", "of_device", "limit"),
    [("72GiB", {}, "72 GiB asked for"), (None, MIB, DEVICE), ("100GiB", MIB, DEVICE), ("72GiB", MIB, "72 GiB asked for")],
)
def test_the_smaller_of_both_limits_counts(write: Write, memory: str | None, of_device: dict[str, str], limit: str) -> None:
    """A kernel whose memory is unknown stays where only the device limits."""
    peaks = {"small": 1.0, "big": 79.9, "blind": None}
    found = answer(write("made", [kernel(name, around(1.0), peak_gib=peak) for name, peak in peaks.items()], of_device), memory=memory)
    assert {choice.name for choice in found.choices} == ({"small"} if memory else {"small", "blind"})
    too_large = f"it takes {79.9 + inputs_gib(8192):.3g} GiB with its inputs, over the {limit}"
    why = {out.line: (out.status, excluded(out)) for out in found.out}
    assert why.pop("big") == ("too large", too_large)
    assert [status for status, _ in why.values()] == (["not counted"] if memory else [])


def test_predicted_memory_has_the_gradients_of_all_kv_heads(write: Write) -> None:
    """What is measured holds the results, and as much again as q and out; so does the prediction, with larger dk and dv."""

    def takes(heads_kv: int, tokens: int = 8192) -> float:
        q, kv = 64 * 128 * tokens * 2 / 2**30, heads_kv * 128 * tokens * 2 / 2**30
        return (2 * q + 2 * kv) + 2 * q

    folder = write("made", [kernel("fa4:bands", around(1.0), "bwd", heads_kv=8, peak_gib=takes(8))], MIB)
    for heads, tokens in (("64:64", 8192), ("64:64", 16384), ("64:8", 16384)):
        (choice,) = answer(folder, str(tokens), heads=heads, pass_="bwd").choices
        kv = int(heads.partition(":")[2])
        inputs = (2 * 64 + 2 * kv) * 128 * tokens * 2 / 2**30
        assert choice.memory_gib == pytest.approx(takes(kv, tokens) + inputs)


def test_predicted_memory_counts_and_more_gpus_are_advised(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory grows with the length: 20 GiB at 8K are 80 at 32K, which with the inputs are more than the device has."""
    folder = write("made", [kernel("fa4:bands", around(1.0), peak_gib=20.0)], MIB)
    assert answer(folder, "16K").best is not None
    found = answer(folder, "32K")
    need = 80.0 + inputs_gib(32768)
    assert need > 80
    assert found.best is None
    expected = f"it would take about {need:.3g} GiB with its inputs, over the 80 GiB of the NVIDIA H200"
    assert [(out.status, excluded(out)) for out in found.out] == [("too large", expected)]
    assert found.measure == "", "the run would not fit either"
    assert main(["recommend", "--mask", "causal", "--seqlen", "32K", "--results", str(folder)]) == NO_RECORD
    assert "more GPUs have more memory (--gpus)." in capsys.readouterr().out


def test_memory_of_ranks_is_that_of_each_gpu(write: Write) -> None:
    folder = write("made", [split("usp", 1.0, ranks=8, peak_gib=81.0), split("magi", 2.0, ranks=8, peak_gib=79.9)], MIB)
    found = answer(folder, gpus=8)
    assert [choice.method for choice in found.choices] == ["magi"]
    assert [out.status for out in found.out] == ["too large"]


def test_the_shipped_results_recommend_nothing_that_an_h200_cannot_hold() -> None:
    for seqlen, fits in (("256K", True), ("512K", False)):
        found = recommend(Question.parse("causal", seqlen, heads="128:128", head_dim="192/128"), load())
        assert (found.best is not None) is fits
        assert all("of the NVIDIA H200" in excluded(out) for out in found.out if out.status == "too large")


def test_memory_is_counted_on_gpus_only(write: Write) -> None:
    folder = write("made", [kernel("torch", around(1.0), peak_gib=None)], {"device": "Some CPU", "device_kind": "cpu"})
    found = answer(folder, memory="80GiB")
    assert [(out.status, excluded(out)) for out in found.out] == [
        ("not counted", "memory is counted on GPUs only, so --memory cannot be answered")
    ]
    assert found.measure == "", "no run would count it"
