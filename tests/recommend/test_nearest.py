"""Nearest answers: scaled by work, with the measured error, marked as such, and never where records answer exactly."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longca
from journals import Write
from longca import masks
from longca.cli import main
from longca.recommend.answer import recommend
from longca.recommend.geometry import Geometry
from longca.recommend.nearest_error import FEW, off_by
from longca.recommend.question import Question
from longca.recommend.shipped import load
from longca.recommend.table import NO_RECORD, NoRecord
from recommend.cells import answer, cell
from report.made import kernel, split

ROOT = Path(__file__).parents[2]
LENGTHS = tuple(n << 10 for n in (2, 3, 4, 5, 6, 7, 8, 10, 14, 16, 24, 28, 32))


@pytest.mark.parametrize("seqlen", ["12K", "20000", "64K", "1K"])
@pytest.mark.parametrize("mask", ["causal", "sliding_window_causal", "prefix_lm_causal"])
def test_a_kernel_with_a_steady_rate_is_predicted_exactly(write: Write, seqlen: str, mask: str) -> None:
    folder = write("made", [cell("fa4:bands", n, 500.0, mask=mask) for n in LENGTHS] + [cell("flex", n, 300.0, mask=mask) for n in LENGTHS])
    found = answer(folder, seqlen, mask)
    assert found.nearest is not None
    assert [(choice.name, choice.tflops) for choice in found.choices] == [
        ("fa4:bands", pytest.approx(500.0)),
        ("flex", pytest.approx(300.0)),
    ]
    assert found.best is not None
    low, high = found.best.ms_range or (0.0, 0.0)
    assert low == pytest.approx(found.best.ms)
    assert high == pytest.approx(found.best.ms)


@given(st.floats(100, 900), st.floats(-0.2, 0.2), st.integers(2049, 32767).filter(lambda n: n not in LENGTHS))
def test_rates_between_two_lengths_lie_between_theirs(rate: float, power: float, seqlen: int) -> None:
    values = {n: rate * (n / 8192) ** power for n in LENGTHS}
    geometry = Geometry.of(seqlen, LENGTHS)
    assert geometry.below < seqlen < geometry.above
    assert geometry.interpolate(values) == pytest.approx(rate * (seqlen / 8192) ** power)


def test_a_kernel_that_computes_hidden_tiles_goes_on_getting_slower(write: Write) -> None:
    """Its rate on a window halves with every doubling, so beyond the longest length it must not win."""
    made = [cell("fa4:bands", n, 400.0, mask="sliding_window_causal") for n in LENGTHS]
    made += [cell("flex", n, 1800.0, mask="sliding_window_causal", power=-1.0) for n in LENGTHS]
    longest = answer(write("made", made), "32K", "sliding_window_causal").best
    beyond = answer(write("again", made), "96K", "sliding_window_causal")
    assert longest is not None
    assert longest.kernel == "flex"
    assert [choice.kernel for choice in beyond.choices] == ["fa4:bands", "flex"]
    assert beyond.choices[1].tflops == pytest.approx(1800.0 / 12, rel=1e-3)


def test_exact_answers_win_and_can_be_demanded(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [*(cell("fa4:bands", n, 500.0) for n in LENGTHS), cell("flex", 12288, 100.0)])
    exact = answer(folder, "12K")
    assert exact.nearest is None
    assert [choice.name for choice in exact.choices] == ["flex"]
    assert exact.best is not None
    assert exact.best.ms_range is None
    words = ["recommend", "--mask", "causal", "--seqlen", "20K", "--pass", "fwd", "--results", str(folder)]
    assert main(words) == 0
    said = capsys.readouterr().out
    first, asked, *_ = said.splitlines()
    assert first.startswith("use fa4:bands: about 500 TFLOP/s, ")
    assert first.endswith("; NEAREST ANSWER, scaled from other measurements.")
    assert asked.startswith("for causal, 20K tokens, ")
    assert "20K tokens were not measured in this shape; the nearest measured lengths are 16K and 24K." in said
    assert "to measure it: longca run --kernels all --masks causal --seqlens 20K " in said
    assert main([*words, "--exact"]) == NO_RECORD
    assert "no record answers this." in capsys.readouterr().out
    assert main([*words, "--seqlen", "64K"]) == 0
    assert "64K tokens were not measured in this shape; the nearest measured length is 32K: 2 times shorter." in capsys.readouterr().out
    assert longca.best("causal", "20K", pass_="fwd", results=folder).ms_range is not None
    with pytest.raises(NoRecord):
        longca.best("causal", "20K", pass_="fwd", exact=True, results=folder)


@pytest.mark.parametrize(("seqlen", "is_far"), [("512", False), ("511", True), ("128K", False), ("131073", True)])
def test_too_far_from_every_length_it_says_how_far_an_answer_reaches(
    write: Write, capsys: pytest.CaptureFixture[str], seqlen: str, is_far: bool
) -> None:
    words = ["recommend", "--mask", "causal", "--seqlen", seqlen, "--pass", "fwd", "--heads", "32:8"]
    folder = write("made", [cell("fa4:bands", n, 500.0) for n in (2048, 8192, 32768)])
    assert main([*words, "--results", str(folder)]) == (NO_RECORD if is_far else 0)
    reach = "a nearest answer reaches from 512 to 128K tokens: 4 times the measured lengths."
    assert (reach in capsys.readouterr().out) is is_far
    assert main([*words, "--exact", "--results", str(folder)]) == NO_RECORD
    assert reach not in capsys.readouterr().out


def test_records_of_other_lengths_and_gpus_share_a_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    made = [cell("fa4:bands", n, 500.0) for n in (8192, 16384)]
    made += [cell("fa4:bands", n << 13, 500.0, level="cp", method="usp", grid=f"{n}x1", ranks=n, simulated="h100-ib") for n in (8, 16)]
    words = ["recommend", "--mask", "causal", "--dtype", "fp16", "--heads", "8:8", "--pass", "fwd", "--seqlen", "8K"]
    folder = write("made", made)
    one, many = ("8K, 16K with", "64K on 8 GPUs, 128K on 16 GPUs with")
    for more, expected in (([], one), (["--gpus", "8"], one), (["--gpus", "8", "--cluster", "h100-ib"], many)):
        assert main([*words, *more, "--results", str(folder)]) == NO_RECORD
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("there are")]
        assert [line.removeprefix("there are records of causal at ").partition(" 64:8")[0] for line in lines] == [expected]


def test_the_json_says_what_was_scaled(write: Write, tmp_path: Path) -> None:
    folder, target = write("made", [cell("fa4:bands", n, 500.0) for n in LENGTHS]), tmp_path / "answer.json"
    words = ["recommend", "--mask", "causal", "--seqlen", "64K", "--pass", "fwd", "--export", str(target), "--results", str(folder)]
    assert main(words) == 0
    (entry,) = json.loads(target.read_text())
    assert entry["nearest"]["lengths"] == [32768]
    assert entry["nearest"]["range_covers"] == 0.9
    assert entry["nearest"]["unknown"] == []
    assert entry["best"]["ms_range"][0] <= entry["best"]["ms"]
    assert main([*words[:3], "--seqlen", "32K", *words[5:]]) == 0
    assert json.loads(target.read_text())[0]["nearest"] is None


def test_other_heads_have_an_error_only_where_records_tell(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [cell("fa4:bands", n, 500.0) for n in LENGTHS])
    found = answer(folder, "8K", heads="32:8")
    assert found.best is not None
    assert found.nearest is not None
    assert found.nearest.unknown == ("too few records differ in --heads alone",)
    assert found.best.tflops == pytest.approx(500.0)
    assert found.best.ms == pytest.approx(cell("fa4:bands", 8192, 500.0)["ms"]["median"] / 2)
    assert found.best.ms_range is None
    both = [cell("fa4:bands", n, 500.0 + 20 * (heads == 32), heads_q=heads) for n in LENGTHS for heads in (64, 32)]
    known = answer(write("both", both), "8K", heads="16:8")
    assert known.nearest is not None
    assert known.nearest.unknown == ()
    assert known.nearest.records[0].problem.heads_q == 32, "the nearest shape"
    assert known.best is not None
    low, high = known.best.ms_range or (0.0, 0.0)
    assert (low / known.best.ms, high / known.best.ms) == (pytest.approx(500 / 520), pytest.approx(520 / 500))
    words = ["recommend", "--mask", "causal", "--seqlen", "8K", "--heads", "32:8", "--pass", "fwd", "--results", str(folder)]
    assert main(words) == 0
    assert "the error of these times is unknown: too few records differ in --heads alone." in capsys.readouterr().out


def test_what_is_no_neighbour(write: Write) -> None:
    """Too long, another dtype, a capped score, many GPUs, a simulation: none of these is a matter of work."""
    made = [cell("fa4:bands", n, 500.0) for n in LENGTHS]
    folder = write("made", [*made, *(split("usp", 1.0, ranks=8, seqlen=n, simulated=s) for n in LENGTHS for s in (None, "h100-ib"))])
    asked: list[dict[str, Any]] = [{"dtype": "fp16"}, {"softcap": 30.0}, {"gpus": 8}, {"gpus": 8, "cluster": "h100-ib"}, {"device": "B200"}]
    for more in asked:
        assert answer(folder, "20K", **more).best is None, more
    assert answer(folder, "256K").best is None
    assert answer(folder, "128K").best is not None


def test_kernels_that_failed_or_refuse_the_shape_are_out(write: Write) -> None:
    made = [cell(name, n, 500.0) for n in LENGTHS for name in ("torch:plain", "fa4:bands")]
    failed = kernel("flex", None, "fwd", seqlen=16384, status="oom", reason="out of memory")
    found = answer(write("made", [*made, failed, cell("flex", 24576, 900.0)]), "18K", head_dim=512)
    assert [choice.name for choice in found.choices] == ["torch:plain"]
    assert {out.line: out.status for out in found.out} == {"fa4:bands": "unsupported", "flex": "oom"}
    assert next(out.reason for out in found.out if out.line == "flex") == "at 16K: out of memory"


def test_a_kernel_without_a_record_that_refuses_the_shape_says_so(write: Write) -> None:
    made = [cell("torch:plain", n, 500.0, which) for n in LENGTHS for which in ("fwd", "bwd")]
    folder = write("made", [*made, *(cell("band_cute", n, 500.0, "bwd") for n in LENGTHS)])
    for dims, reason in ((256, "head sizes"), (128, "at 16K: there is no record of its fwd")):
        (out,) = answer(folder, "18K", pass_="fwd+bwd", head_dim=dims).out
        assert (out.line, out.status) == ("band_cute", "unsupported")
        assert reason in out.reason, out.reason


def test_documents_that_make_a_mask_much_sparser_are_said(write: Write) -> None:
    made = [cell("fa4:bands", n, 500.0, mask="causal_document", seed=0) for n in LENGTHS]
    measured, asked = (masks.build("causal_document", n << 10, seed=0).density for n in (32, 128))
    assert measured > 2 * asked
    nearest = answer(write("made", made), "128K", "causal_document").nearest
    assert nearest is not None
    said = f"with seed 0, {100 * asked:.2g} % of all pairs are visible at 128K tokens, and {100 * measured:.2g} % at 32K"
    assert said in " ".join(nearest.differences)


def test_long_times_have_no_exponent(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write("made", [kernel("fa3", [25291.4] * 6, mask="causal_document", plan_ms=2.0)])
    assert main(["recommend", "--mask", "causal_document", "--seqlen", "8K", "--results", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("25291") == 2  # in the headline and in the table
    assert "takes 25293 ms" in shown
    assert "e+" not in shown


def test_planning_changes_the_answer(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    made = [
        kernel(name, [ms] * 6, mask="causal_document", plan_ms=plan_ms) for name, ms, plan_ms in (("cudnn", 6.0, 146.0), ("fa3", 7.0, 2.0))
    ]
    folder = write("made", made)
    names = {calls: answer(folder, "8K", "causal_document", pass_="fwd+bwd", calls_per_plan=calls).choices[0] for calls in (None, 1, 1000)}
    assert {calls: choice.name for calls, choice in names.items()} == {None: "cudnn", 1: "fa3", 1000: "cudnn"}
    assert names[1].ms == pytest.approx(9.0)
    assert names[1000].ms == pytest.approx(6.146)
    assert names[1].joules == pytest.approx(600.0 * 7.0 / 1e3), "of the call without its planning"
    words = ["recommend", "--mask", "causal_document", "--seqlen", "8K", "--results", str(folder)]
    assert main(words) == 0
    assert "with new documents in every call, cudnn takes 152 ms and fa3 9 ms: see --calls-per-plan." in capsys.readouterr().out
    assert main([*words, "--calls-per-plan", "1"]) == 0
    assert main([*words, "--calls-per-plan", "3", "--dtype", "fp16"]) == NO_RECORD
    assert " --calls-per-plan 3 " in capsys.readouterr().out.partition("then: longca recommend ")[2]
    assert main([*words, "--calls-per-plan", "1"]) == 0
    assert "times include planning, divided by 1 call." in capsys.readouterr().out
    assert main([*words, "--calls-per-plan", "0"]) == 2


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=200))
def test_the_factor_holds_nine_of_ten(ratios: list[float]) -> None:
    factor = off_by(ratios)
    inside = sum(1 / factor <= ratio * (1 + 1e-9) and ratio <= factor * (1 + 1e-9) for ratio in ratios)
    assert inside >= 0.9 * len(ratios) - 1
    assert len(ratios) >= FEW or inside == len(ratios)


@pytest.mark.parametrize(
    ("mask", "seqlen", "heads"), [("causal", "64K", "32:8"), ("causal_document", "80K", "64:8"), ("full", "20K", "40:8")]
)
def test_the_shipped_results_answer_with_the_nearest(mask: str, seqlen: str, heads: str) -> None:
    found = recommend(Question.parse(mask, seqlen, heads=heads), load(ROOT / "results" / "h200"))
    assert found.nearest is not None
    assert found.best is not None
    low, high = found.best.ms_range or (math.nan, math.nan)
    assert 0.5 * found.best.ms < low < found.best.ms < high < 2 * found.best.ms
    assert found.device == "NVIDIA H200"


def test_a_shape_that_was_measured_only_far_away_gives_way_to_one_that_is_near(write: Write) -> None:
    """One record of the very shape, eight times shorter, must not hide those of other heads."""
    made = [cell("fa4:bands", 2048, 300.0, heads_q=32), *(cell("fa4:bands", n, 500.0) for n in (8192, 16384))]
    folder = write("made", made)
    for seqlen, heads in (("8K", 32), ("16K", 64)):
        found = answer(folder, seqlen, heads="32:8").nearest
        assert found is not None
        assert {record.problem.heads_q for record in found.records} == {heads}
    assert "there is no record of this mask near this length with 32:8 heads of 128; the nearest shape is 64:8" in found.differences[0]


@pytest.mark.parametrize("mask", ["causal", "causal_document", "sliding_window_causal", "share_question"])
@pytest.mark.parametrize("heads", ["32:8", "40:8", "8:1"])
def test_shapes_of_models_are_answered_exactly_and_between_their_lengths(mask: str, heads: str) -> None:
    shipped = load(ROOT / "results" / "h200")
    for seqlen in ("8K", "32K", "128K"):
        exact = recommend(Question.parse(mask, seqlen, heads=heads), shipped)
        assert exact.best is not None
        assert exact.nearest is None
    between = recommend(Question.parse(mask, "64K", heads=heads), shipped).nearest
    assert between is not None
    assert between.lengths == (32768, 131072)
    assert {f"{record.problem.heads_q}:{record.problem.heads_kv}" for record in between.records} == {heads}


def test_a_pair_is_scaled_as_single_kernels_are(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """At steady rates, its passes are those of the two kernels at the length that is asked for, and their plans count where they must."""
    rates = {"fa3": (600.0, 300.0), "fa4:bands": (500.0, 400.0), "flex": (900.0, 300.0)}  # flex gives no lse: it is in no pair
    which = ("fwd", "bwd")
    made = [cell(name, n, rate, part) for n in LENGTHS for name, both in rates.items() for part, rate in zip(which, both, strict=True)]
    folder = write("made", [*made, *(cell("band_cute", n, 450.0, "bwd") for n in LENGTHS)])
    found = answer(folder, "12K", pass_="fwd+bwd")
    pair, best = found.pair, found.best
    assert found.nearest is not None
    assert pair is not None
    assert best is not None
    assert (best.name, pair.name) == ("fa4:bands", "fa3 + band_cute")
    forward, backward = (cell("fa3", 12288, rate, part)["ms"]["median"] for rate, part in ((600.0, "fwd"), (450.0, "bwd")))
    assert (pair.forward_ms, pair.backward_ms, pair.ms) == tuple(map(pytest.approx, (forward, backward, forward + backward)))
    assert pair.ms_range == tuple(map(pytest.approx, (pair.ms, pair.ms)))
    planned = answer(folder, "12K", pass_="fwd+bwd", calls_per_plan=10).pair
    assert planned is not None
    assert planned.ms == pytest.approx(pair.ms + (pair.plan_ms or 0.0) / 10)
    assert main(["recommend", "--mask", "causal", "--seqlen", "12K", "--results", str(folder)]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("use best, the default of longca.attention (fa3 forward + band_cute backward): about ")
    assert first.endswith("; NEAREST ANSWER, scaled from other measurements.")


def test_beyond_its_lengths_a_shape_goes_on_as_another_one(write: Write) -> None:
    """The very shape is slower by a third and measured at 8K alone; the other gets faster with the length. No longer call is faster."""
    own = [cell("fa4:bands", 8192, 400.0, heads_q=32), cell("flex", 8192, 200.0, heads_q=32)]
    others = [cell("fa4:bands", n << 10, 600.0, power=0.1) for n in (4, 8, 16, 32, 64)]
    folder = write("made", [*own, *others])
    times = []
    for seqlen in (4096, 6000, 16384, 32768, 32769, 33792, 65536, 200000):
        found = answer(folder, str(seqlen), heads="32:8")
        assert found.nearest is not None
        assert found.best is not None
        times.append(found.best.ms)
        assert {record.problem.heads_q for record in found.nearest.records} == {32}
        assert found.best.tflops == pytest.approx(400.0 * (min(seqlen, 65536) / 8192) ** 0.1, rel=0.01)
        assert "speeds change with the length as those of 64:8 heads of 128 do" in found.nearest.differences
        assert {source.record.problem.heads_q for source in found.best.other_sources} == {64}
    assert times == sorted(times)
    assert [out.reason for out in found.out] == ["there is no record of it near 200000 tokens"], "of flex"


def test_a_kernel_that_the_other_shape_lacks_goes_on_by_itself(write: Write) -> None:
    """The other shape has fa4:bands only. The rate of flex halves with every doubling."""
    own = [cell("fa4:bands", n, 400.0, heads_q=32, mask="sliding_window_causal") for n in (4096, 8192)]
    own += [cell("flex", n, 300.0, heads_q=32, mask="sliding_window_causal", power=-1.0) for n in (4096, 8192)]
    others = [cell("fa4:bands", n << 10, 600.0, mask="sliding_window_causal", power=0.1) for n in (4, 8, 16, 32)]
    alone = answer(write("alone", own), "16K", "sliding_window_causal", heads="32:8")
    guided = answer(write("guided", [*own, *others]), "16K", "sliding_window_causal", heads="32:8")
    speeds = [{choice.name: choice.tflops for choice in found.choices} for found in (alone, guided)]
    assert speeds[0]["flex"] == pytest.approx(speeds[1]["flex"])
    assert speeds[1]["fa4:bands"] > 1.05 * speeds[0]["fa4:bands"]


LATENT = {"head_dim": 192, "head_dim_v": 128}


@pytest.mark.parametrize("heads", ["64:64", "128:128"])
def test_the_nearest_shape_has_the_same_head_sizes_whatever_its_lengths(write: Write, heads: str) -> None:
    """It was measured at 8K alone, and goes on as the shape that is nearest to it: both questions have the same speed at every length."""
    own = [cell("fa4:bands", 8192, 400.0, heads_q=128, heads_kv=128, **LATENT)]
    others = [cell("fa4:bands", n << 10, 600.0, power=0.1, heads_q=64) for n in (4, 8, 16, 32, 64, 128)]
    farther = [cell("fa4:bands", n << 10, 600.0, power=-0.2, heads_q=8, heads_kv=1) for n in (8, 16, 32, 64, 128)]
    folder = write("made", [*farther, *others, *own])
    for seqlen in (4096, 8192, 8200, 16384, 32768, 40000, 65536, 131072):
        found = answer(folder, str(seqlen), heads=heads, head_dim="192/128")
        assert found.best is not None
        assert found.best.tflops == pytest.approx(400.0 * (seqlen / 8192) ** 0.1, rel=0.02)
        assert {source.record.problem.head_dim for source in found.best.sources} == {192}


def test_shapes_that_are_equally_far_away_do_not_take_turns(write: Write) -> None:
    """40:8 and 64:8 heads are as far from 8:1; the shape with more lengths answers at all lengths."""
    few = [cell("fa4:bands", n << 10, 300.0, heads_q=40) for n in (8, 32)]
    many = [cell("fa4:bands", n << 10, 500.0) for n in (8, 20, 64)]
    folder = write("made", [*few, *many])
    speeds = [answer(folder, f"{n}K", heads="8:1").choices[0].tflops for n in (8, 12, 20, 32, 64)]
    assert speeds == pytest.approx([500.0] * 5)


def test_two_models_with_latent_attention_agree_in_the_shipped_results() -> None:
    shipped = load(ROOT / "results" / "h200")
    speeds: dict[str, list[float]] = {}
    for seqlen in ("8K", "12K", "32K", "33K", "64K", "128K"):
        kimi, deepseek = (recommend(Question.parse("causal", seqlen, heads=h, head_dim="192/128"), shipped) for h in ("64:64", "128:128"))
        own = {choice.name: choice.tflops for choice in deepseek.choices}
        assert {choice.name: choice.tflops for choice in kimi.choices} == {name: pytest.approx(own[name], rel=1e-3) for name in own}
        for name, tflops in own.items():
            speeds.setdefault(name, []).append(tflops)
    assert {name: len(own) for name, own in speeds.items()} == dict.fromkeys(("fa3", "fa4:native", "cudnn_flex:rows", "cudnn"), 6)
    assert max(max(pair) / min(pair) for own in speeds.values() for pair in pairwise(own)) < 1.06


def test_a_cell_is_not_predicted_from_itself() -> None:
    """Not even where the length that is asked for is nearly a measured one."""
    geometry = Geometry.of(8200, [8192])
    assert geometry.at(8192, [4096, 8192]) == Geometry(8192, 4096, 0)
    assert Geometry.of(8190, [8192]).at(8192, [8192, 16384]) == Geometry(8192, 0, 16384)


def test_a_kernel_that_both_shapes_have_only_far_away_is_not_predicted(write: Write) -> None:
    """Where the length lies between two of the other shape, and the shorter one is the last of the very shape."""
    own = [cell(name, 8192, 400.0, heads_q=32) for name in ("fa4:bands", "flex")]
    others = [cell("fa4:bands", 8192, 600.0), cell("fa4:bands", 131072, 600.0), cell("flex", 8192, 600.0)]
    found = answer(write("made", [*own, *others]), "100000", heads="32:8")
    assert [choice.name for choice in found.choices] == ["fa4:bands"]
    assert [(out.line, out.reason) for out in found.out] == [("flex", "there is no record of it near 100000 tokens")]


def test_equal_predictions_are_those_whose_ranges_overlap(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    rates = {"fa4:bands": 500.0, "fa3": 465.0, "fa4:native": 440.0}
    made = [cell(name, n, rate * (1.1 if n % 4096 else 1.0)) for name, rate in rates.items() for n in LENGTHS]
    words = ["recommend", "--mask", "causal", "--pass", "fwd", "--results", str(write("made", made)), "--seqlen"]
    assert main([*words, "12K"]) == 0
    said = capsys.readouterr().out
    assert "\nas fast as fa4:bands, within 10 %, with overlapping ranges: fa3.\n" in said
    assert " 0.93x, equal within 10 %, with overlapping ranges\n" in said
    assert main([*words, "8K", "--heads", "32:8"]) == 0
    assert "as fast as" not in capsys.readouterr().out, "7 % apart, and no range is known"
    assert main([*words, "8K"]) == 0
    assert "overlapping" not in capsys.readouterr().out


def test_an_answer_between_two_lengths_lists_the_records_of_both(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    made = [cell("fa4:bands", n, 500.0, noisy=n == 32768, plan_ms=n / 4096, watts=n / 100) for n in (8192, 32768)]
    folder = write("made", made)
    found = answer(folder, "12K")
    (choice,) = found.choices
    assert (choice.joules is None, answer(folder, "2K").choices[0].joules) == (False, None), "predicted to take less than 1 ms"
    assert [source.record.problem.seqlen for source in choice.sources] == [8192, 32768]
    assert (choice.plan_ms, choice.noisy, choice.summed, found.masks) == (2.0, True, False, 1)
    assert main(["recommend", "--mask", "causal", "--seqlen", "12K", "--pass", "fwd", "--results", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "planning was not scaled: it is that of 8K tokens." in said
    assert said.partition("\nrecords:\n")[2].count(" fwd seed ") == 2
