"""Predictions for windows that were not measured: between measured ones, and up to a window over the whole sequence."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journals import Write, writer
from longca import masks
from longca.cli import main
from longca.recommend.answer import Answer, recommend
from longca.recommend.question import Question
from longca.recommend.shipped import load
from recommend.cells import answer, cell

ROOT = Path(__file__).parents[2]
WHOLE = [("sliding_window_causal", "causal"), ("sliding_window", "full"), ("sliding_window_causal_document", "causal_document")]


def on_the_line(w: int, low: int, low_rate: float, high: int, high_rate: float) -> float:
    """The rate at w on a straight line over logarithms."""
    part = (math.log(w) - math.log(low)) / (math.log(high) - math.log(low))
    return low_rate ** (1 - part) * high_rate**part


def test_windows_between_and_beyond_measured_ones(write: Write) -> None:
    """Causal was not measured, so a window wider than all others has the rate of the widest."""
    rates = {256: 200.0, 2048: 450.0, 4096: 460.0}
    folder = write("made", [cell("fa4:bands", 8192, rate, mask="sliding_window_causal", params={"w": w}) for w, rate in rates.items()])
    for w in (128, 300, 512, 724, 725, 2000, 3000, 6000):
        best = answer(folder, "8K", "sliding_window_causal", params={"w": w}).best
        low, high = max((n for n in rates if n < w), default=256), min((n for n in rates if n > w), default=4096)
        expected = rates[low] if low == high or w < 256 else on_the_line(w, low, rates[low], high, rates[high])
        assert best is not None
        assert best.tflops == pytest.approx(expected), w


@pytest.mark.parametrize(("mask", "plain"), WHOLE)
def test_a_window_over_the_whole_sequence_is_the_mask_without_it(
    write: Write, capsys: pytest.CaptureFixture[str], mask: str, plain: str
) -> None:
    windows = [cell("fa4:bands", n, 300.0, mask=mask, params={"w": 1024}) for n in (4096, 8192)]
    folder = write("made", [*windows, *(cell("fa4:bands", n, 600.0, mask=plain) for n in (4096, 8192))])
    for w in (8191, 9999999):
        found = answer(folder, "8K", mask, params={"w": w})
        assert found.best is not None
        assert (found.best.tflops, found.same_as, found.question.mask) == (pytest.approx(600.0), plain, mask)
        assert found.nearest is None
    assert answer(folder, "6K", mask, params={"w": 9999999}).nearest is not None
    words = ["recommend", "--mask", mask, "--seqlen", "8K", "--pass", "fwd", "--set", "w=9999999", "--results", str(folder)]
    assert main(words) == 0
    assert f"at this length the mask shows the same pairs as {plain}, whose records answer." in capsys.readouterr().out


def test_the_records_of_both_ends_are_named_and_their_doubts_count(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    window = cell("fa4:bands", 8192, 300.0, mask="sliding_window_causal", params={"w": 1024})
    folder = write("made", [window, cell("fa4:bands", 8192, 600.0, noisy=True)])
    best = answer(folder, "8K", "sliding_window_causal", params={"w": 4096}).best
    assert best is not None
    assert [source.record.problem.mask for source in best.sources] == ["sliding_window_causal"]
    assert [source.record.problem.mask for source in best.other_sources] == ["causal"]
    assert best.noisy
    assert [record["key"] for record in best.to_json()["other_records"]] == [best.other_sources[0].record.key]
    words = ["recommend", "--mask", "sliding_window_causal", "--seqlen", "8K", "--pass", "fwd", "--set", "w=4096", "--results", str(folder)]
    assert main(words) == 0
    assert "records of another shape or mask:\n" in capsys.readouterr().out


@pytest.mark.parametrize(("mask", "plain"), WHOLE)
def test_a_wide_window_is_on_the_way_to_the_mask_that_contains_it(write: Write, mask: str, plain: str) -> None:
    """Its rate lies between both, its time is never longer than that of the mask that contains it."""
    windows = [cell(name, n, 300.0, mask=mask, params={"w": 1024}) for n in (4096, 8192) for name in ("fa4:bands", "flex")]
    folder = write("made", [*windows, *(cell("fa4:bands", n, 600.0, mask=plain) for n in (4096, 8192))])
    whole = answer(folder, "8K", plain).choices[0].ms
    for w in (1025, 2000, 4096, 7000, 8190):
        found = answer(folder, "8K", mask, params={"w": w})
        bands, flex = found.choices
        area = masks.build(mask, 8192, w=w, seed=0).area
        ms = 4 * area * 64 * 128 / on_the_line(w, 1024, 300.0, 8191, 600.0) / 1e9
        assert bands.ms == pytest.approx(min(ms, whole))
        assert flex.tflops == pytest.approx(300.0), "there is no record of it on the plainer mask"
        assert found.nearest is not None
        how = f"between w=1024 and {plain}, which w=8191 equals; flex without a record of {plain}: as at w=1024"
        assert f"speeds are interpolated over the logarithm of w {how}" in found.nearest.differences


@pytest.mark.parametrize(("mask", "name", "plain"), [("chunked_causal", "c", "causal"), ("prefix_lm_causal", "p", "full")])
def test_other_parameters_end_where_the_mask_is_a_plainer_one(write: Write, mask: str, name: str, plain: str) -> None:
    """A chunk, or a prefix, of all tokens but one still hides something."""
    folder = write("made", [cell("fa4:bands", 4096, 300.0, mask=mask, params={name: 16}), cell("fa4:bands", 4096, 600.0, mask=plain)])
    found = answer(folder, "4K", mask, params={name: 4095})
    assert found.best is not None
    assert found.nearest is not None
    assert found.best.tflops == pytest.approx(on_the_line(4095, 16, 300.0, 4096, 600.0), rel=1e-3)
    assert f"between {name}=16 and {plain}, which {name}=4096 equals" in " ".join(found.nearest.differences)


def test_a_measured_window_over_the_whole_sequence_is_no_end_of_itself(write: Write) -> None:
    """w=1024 was measured at 1K, where it hides nothing; causal was, too."""
    made = [cell("fa4:bands", 1024, rate, mask="sliding_window_causal", params={"w": w}) for w, rate in ((8, 200.0), (1024, 500.0))]
    folder = write("made", [*made, cell("fa4:bands", 1024, 600.0)])
    best = answer(folder, "1K", "sliding_window_causal", params={"w": 512}).best
    assert best is not None
    assert best.tflops == pytest.approx(500.0)


@given(st.integers(1, 8190), st.floats(100, 900), st.floats(100, 900))
def test_times_are_continuous_in_the_window(tmp_path_factory: pytest.TempPathFactory, w: int, narrow: float, wide: float) -> None:
    """One more key per row changes the time by what it changes the work, and a little for the rate."""
    windows = [cell("fa4:bands", 8192, narrow, mask="sliding_window_causal", params={"w": 512})]
    folder = writer(tmp_path_factory.mktemp("made"))("made", [*windows, cell("fa4:bands", 8192, wide)])
    times = [answer(folder, "8K", "sliding_window_causal", params={"w": n}).choices[0].ms for n in (w, w + 1)]
    areas = [masks.build("sliding_window_causal", 8192, w=n).area for n in (w, w + 1)]
    assert abs(math.log(times[1] / times[0] * areas[0] / areas[1])) <= abs(math.log(wide / narrow)) / max(w, 512) + 1e-6


def shipped_times(windows: list[int], **more: Any) -> list[dict[str, float]]:
    """Times by kernel for each window, of 32:8 heads at 64K tokens, which lie between measured lengths."""
    results = load(ROOT / "results" / "h200")
    found: list[Answer] = [
        recommend(Question.parse("sliding_window_causal", "64K", heads="32:8", params={"w": w}, **more), results) for w in windows
    ]
    return [{choice.name: choice.ms for choice in one.choices} for one in found]


def test_windows_of_the_shipped_results_are_never_slower_than_causal() -> None:
    *narrower, last, causal = shipped_times([2048, 8192, 32768, 50000, 60000, 65534, 65535])
    compared = causal.keys() & last.keys()
    assert {"fa3", "fa4:native"} <= compared
    for name in compared:
        times = [one[name] for one in (*narrower, last, causal)]
        assert all(after >= before * (1 - 1e-6) for before, after in pairwise(times)), name
        assert last[name] == pytest.approx(causal[name], rel=1e-6)


def test_the_ratio_of_blocks_is_interpolated(write: Write) -> None:
    """On a straight line over logarithms; a size of blocks is not, and ends with another size are none."""
    about = {"mask": "uniform_block", "level": "sparse"}
    rates = {(64, 0.2): 300.0, (64, 0.8): 600.0, (128, 0.4): 900.0}
    made = [cell("flex", 8192, rate, **about, params={"b": b, "ratio": ratio, "heads": 8}) for (b, ratio), rate in rates.items()]
    folder = write("made", made)
    for ratio in (0.25, 0.3, 0.5, 0.7):
        found = answer(folder, "8K", "uniform_block", params={"b": 64, "ratio": ratio})
        assert found.best is not None
        assert found.nearest is not None
        part = math.log(ratio / 0.2) / math.log(4)
        assert found.best.tflops == pytest.approx(300 * 2**part, rel=0.02), "the drawn blocks differ a little from the ratio"
        assert "over the logarithm of ratio between ratio=0.2 and ratio=0.8" in " ".join(found.nearest.differences)
    beyond = answer(folder, "8K", "uniform_block", params={"b": 64, "ratio": 0.9})
    size = answer(folder, "8K", "uniform_block", params={"b": 96, "ratio": 0.4})
    for found in (beyond, size):
        assert found.nearest is not None
        assert "interpolated" not in " ".join(found.nearest.differences)


def test_hidden_ratios_of_the_shipped_results_are_nearer_between_two_than_at_one() -> None:
    results = load(ROOT / "results" / "h200" / "paper-sparse")
    off = dict[str, list[float]](between=[], nearest=[])
    for b, pass_ in ((64, "fwd"), (64, "bwd"), (128, "fwd"), (128, "bwd")):
        question = Question.parse("uniform_block", "16K", pass_=pass_, params={"b": b, "ratio": 0.5})
        measured = {choice.name: choice.ms for choice in recommend(question, results).choices}
        for name, ratios in (("between", (0.2, 0.8)), ("nearest", (0.8,))):
            seen = [record for record in results.records if record.built.params.get("ratio") in ratios]
            found = recommend(question, replace(results, records=seen))
            assert found.nearest is not None
            assert ("interpolated" in " ".join(found.nearest.differences)) is (name == "between")
            off[name] += [abs(math.log(choice.ms / measured[choice.name])) for choice in found.choices if choice.name in measured]
    between, nearest = (sorted(off[name]) for name in ("between", "nearest"))
    assert len(between) == len(nearest) >= 12
    for part in (0.5, 0.9):
        at = int(part * (len(between) - 1))
        assert between[at] < nearest[at]


def test_the_range_of_a_window_between_two_is_that_of_such_predictions(write: Write) -> None:
    """Rates are on a straight line over logarithms, so that predictions between windows are exact; those from one other window are not."""
    windows = {w: 100.0 * w**0.2 for w in (128, 512, 1024, 4096)}
    made = [
        cell("fa4:bands", n << 10, rate, mask="sliding_window_causal", params={"w": w})
        for n in (8, 16, 24, 32, 48)
        for w, rate in windows.items()
    ]
    folder = write("made", made)
    inside, beyond, far = (answer(folder, "32K", "sliding_window_causal", params={"w": w}).best for w in (2048, 64, 2))
    assert inside is not None
    assert beyond is not None
    assert far is not None
    assert inside.ms_range == (pytest.approx(inside.ms, rel=0.01), pytest.approx(inside.ms, rel=0.01))
    assert beyond.ms_range is not None
    assert beyond.ms_range[1] == pytest.approx(4**0.2 * beyond.ms, rel=0.01), "128 from 512, as far away or farther"
    assert far.ms_range is None, "64 times narrower: no two windows are as far apart"


def test_the_window_counts_more_than_the_heads(write: Write) -> None:
    made = [cell("fa4:bands", 8192, 300.0, mask="sliding_window_causal", params={"w": 1024}, heads_q=32)]
    made += [cell("fa4:bands", 8192, 500.0, mask="sliding_window_causal", params={"w": 4096}, heads_q=64)]
    found = answer(write("made", made), "8K", "sliding_window_causal", params={"w": 4095}, heads="32:8")
    assert found.nearest is not None
    assert {record.problem.heads_q for record in found.nearest.records} == {64}


def test_a_window_of_one_token_more_adds_no_error(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    """The windows of models count the token itself."""
    rates = {128: 200.0, 512: 400.0, 1024: 500.0, 4096: 600.0}
    made = [
        cell("fa4:bands", n << 10, rate, mask="sliding_window_causal", params={"w": w}) for n in (8, 16, 32) for w, rate in rates.items()
    ]
    folder = write("made", made)
    for w, near in ((127, 128), (1023, 1024), (4097, 4096)):
        found = answer(folder, "16K", "sliding_window_causal", params={"w": w}).best
        assert found is not None
        assert found.ms_range == (pytest.approx(found.ms / 1.03), pytest.approx(found.ms * 1.03))
        words = ["recommend", "--mask", "sliding_window_causal", "--seqlen", "16K", "--pass", "fwd", "--set", f"w={w}"]
        assert main([*words, "--results", str(folder)]) == 0
        assert f"the nearest is w={near}, hardly {'wider' if near > w else 'narrower'}." in capsys.readouterr().out
