"""The interval of a ratio: made samples with and without a change, with noise, spikes, drifts and steps."""

import math
import statistics
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca.compare.verdicts import LOOSE, Verdict, decide
from longca.results.ratio import CONFIDENCE, REPEATS, as_fast, ratio

THRESHOLD = 0.03
SAMPLES = st.lists(st.floats(0.5, 2.0), min_size=5, max_size=14)
CHANGES = (Verdict.SLOWER, Verdict.FASTER)
Pairs = list[tuple[list[float], list[float]]]


def verdicts(pairs: Pairs, threshold: float = THRESHOLD) -> list[Verdict]:
    return [decide(result, threshold) for result in (ratio(*pair) for pair in pairs)]


def alarms(pairs: Pairs) -> float:
    """The share of pairs that are called changed."""
    return sum(verdict in CHANGES for verdict in verdicts(pairs)) / len(pairs)


def half_width(samples: Sequence[float]) -> float:
    """The relative half width of the median's 95 % interval from order statistics."""
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, int((n - 1) / 2 - reach)), min(n - 1, int((n - 1) / 2 + reach + 0.999))
    return (ordered[high] - ordered[low]) / 2 / statistics.median(ordered)


def lognormal(random: np.random.Generator, noise: float, n: int, scale: float = 1.0) -> list[float]:
    return (scale * np.exp(noise * random.standard_normal(n))).tolist()


def drifting(random: np.random.Generator, noise: float, n: int) -> list[float]:
    """Each sample is close to the one before: what a busy machine gives."""
    steps = noise * random.standard_normal(n)
    for i in range(1, n):
        steps[i] += 0.6 * steps[i - 1]
    return np.exp(steps).tolist()


def spiked(random: np.random.Generator, noise: float, n: int) -> list[float]:
    times = np.exp(noise * random.standard_normal(n))
    return (times * np.where(random.random(n) < 0.1, 3.0, 1.0)).tolist()


DRIFTS = [(drifting, noise, n) for noise, n in ((0.01, 5), (0.01, 20), (0.03, 20), (0.1, 60))]


@pytest.mark.parametrize(("draw", "noise", "n"), [*product((lognormal, spiked), (0.002, 0.01, 0.1), (5, 20)), *DRIFTS])
def test_no_false_alarm_beyond_the_stated_rate(draw: Callable[..., list[float]], noise: float, n: int) -> None:
    random = np.random.default_rng(7)
    assert alarms([(draw(random, noise, n), draw(random, noise, n)) for _ in range(1000)]) <= 1 - CONFIDENCE


@pytest.mark.parametrize(
    ("correlation", "noise", "n", "least", "most"),
    [
        (0.9, 0.01, 5, 0.0, 0.005),
        (0.9, 0.01, 8, 0.0, 0.005),
        (0.9, 0.02, 5, 0.005, 0.025),
        (0.9, 0.02, 20, 0.0, 0.01),
        (0.95, 0.02, 5, 0.02, 0.06),
        (0.95, 0.02, 20, 0.0, 0.015),
    ],
)
def test_the_limits_are_those_of_the_docs(correlation: float, noise: float, n: int, least: float, most: float) -> None:
    """Of all pairs, whether they are seen to drift or not; as in `compare`, what is noisy is never called changed."""
    pairs = pairs_that_drift(correlation, noise, n)
    steady = [pair for pair in pairs if max(map(half_width, pair)) <= LOOSE]
    assert least <= alarms(steady) * len(steady) / len(pairs) <= most


def test_the_interval_covers_the_true_ratio_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    for n in (5, 20, 60):
        pairs = [(lognormal(random, 0.05, n), lognormal(random, 0.05, n, 1.2)) for _ in range(1000)]
        assert sum(result.low <= 1.2 <= result.high for result in (ratio(*pair) for pair in pairs)) >= 980


@pytest.mark.parametrize(("scale", "expected"), [(1.05, "SLOWER"), (1 / 1.05, "FASTER"), (1.0, "SAME")])
def test_a_shift_of_five_percent_is_found_in_20_samples_with_1_percent_noise(scale: float, expected: str) -> None:
    random = np.random.default_rng(3)
    pairs = [(lognormal(random, 0.01, 20), lognormal(random, 0.01, 20, scale)) for _ in range(1000)]
    assert verdicts(pairs).count(Verdict(expected)) >= 950


def test_too_few_samples_are_unclear_however_far_apart() -> None:
    for before, after in (([1.0] * 4, [2.0] * 4), ([1.0] * 25, [2.0] * 3), ([1.0] * 3, [2.0] * 25), ([1.0] * 200, [9.0])):
        result = ratio(before, after)
        assert result.value == pytest.approx(after[0])
        assert result.few
        assert decide(result, THRESHOLD) is Verdict.UNCLEAR


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.9])
@pytest.mark.parametrize("n", [8, 9, 14, 30])
def test_the_interval_of_a_drift_holds_the_true_ratio(correlation: float, n: int) -> None:
    """Where the correlation leaves no rank, of any drift that comes back to where it was: no change, however small a threshold is."""
    drifts = [result for result in (ratio(*pair) for pair in pairs_that_drift(correlation, 0.01, n)) if result.drifting]
    assert len(drifts) > 10 or (correlation == 0 and n > 9)
    assert sum(decide(result, 0.0) in CHANGES for result in drifts) <= len(drifts) * (1 - CONFIDENCE)


@pytest.mark.parametrize("correlation", [0.6, 0.9, 0.95])
@pytest.mark.parametrize("n", [8, 14, 20])
def test_a_drift_of_parts_of_a_percent_hides_no_change_of_five(correlation: float, n: int) -> None:
    """Samples that all lie close together show that nothing changed; where something did, at most 1 % say so."""
    changed = verdicts(pairs_that_drift(correlation, 0.005, n, 1.05))
    assert changed.count(Verdict.SAME) <= len(changed) * (1 - CONFIDENCE)
    alike = verdicts(pairs_that_drift(correlation, 0.001, n))
    assert alike.count(Verdict.SAME) > 0.9 * len(alike)


def pairs_that_drift(correlation: float, noise: float, n: int, scale: float = 1.0) -> Pairs:
    """1,000 pairs, the second times `scale`; each sample is close to the one before, as if that had gone on for long."""
    steps = np.random.default_rng(5).standard_normal((2000, n))
    for i in range(1, n):
        steps[:, i] = correlation * steps[:, i - 1] + np.sqrt(1 - correlation**2) * steps[:, i]
    times = np.exp(noise * steps)
    return list(zip(times[::2].tolist(), (scale * times[1::2]).tolist(), strict=True))


def pairs_with_a_step(noise: float, n: int, same_size: bool) -> Pairs:
    """1,000 pairs without a change: in each run the clock steps once, at a random place, by up to 13 %."""
    random = np.random.default_rng(11)
    times = np.exp(noise * random.standard_normal((1000, 2, n)))
    places = random.integers(1, n, (1000, 2, 1))
    sizes = random.uniform(0, 0.13, (1000, 1 if same_size else 2, 1))
    times *= np.where(np.arange(n) >= places, 1 + sizes, 1.0)
    return [(before.tolist(), after.tolist()) for before, after in times]


@pytest.mark.parametrize("same_size", [True, False])
@pytest.mark.parametrize("noise", [0.001, 0.01, 0.02])
@pytest.mark.parametrize("n", [5, 8, 20, 100])
def test_a_step_of_the_clock_within_each_run_is_no_change(noise: float, n: int, same_size: bool) -> None:
    assert alarms(pairs_with_a_step(noise, n, same_size)) <= 1 - CONFIDENCE


def test_a_change_beyond_a_step_is_found() -> None:
    early, late = [1.0] * 2 + [1.1] * 18, [1.0] * 18 + [1.1] * 2
    assert decide(ratio(late, early), THRESHOLD) is Verdict.UNCLEAR, "the step explains it"
    assert decide(ratio(late, [1.3 * time for time in early]), THRESHOLD) is Verdict.SLOWER
    assert decide(ratio([1.3 * time for time in early], late), THRESHOLD) is Verdict.FASTER


@given(SAMPLES, SAMPLES)
def test_the_estimate_lies_in_its_interval(before: list[float], after: list[float]) -> None:
    result = ratio(before, after)
    assert result.low * (1 - 1e-12) <= result.value <= result.high * (1 + 1e-12)


MEASURED = st.lists(st.floats(0.9, 1.3), min_size=1, max_size=14)


@given(MEASURED, MEASURED)
def test_equal_is_symmetric_and_needs_samples_that_come_within_the_margin(a: list[float], b: list[float]) -> None:
    assert as_fast(a, b) == as_fast(b, a)
    assert as_fast(a, a)
    if as_fast(a, b):
        assert max(min(b) / max(a), min(a) / max(b)) <= 1 + REPEATS


@pytest.mark.parametrize("noise", [0.002, 0.02])
def test_a_difference_of_twice_the_margin_and_of_the_noise_is_told(noise: float) -> None:
    random = np.random.default_rng(5)
    pairs = [(lognormal(random, noise, 20), lognormal(random, noise, 20, 1 + 2 * REPEATS + 2 * noise)) for _ in range(300)]
    assert sum(as_fast(*pair) for pair in pairs) <= 15
    same = [(lognormal(random, noise, 20), lognormal(random, noise, 20)) for _ in range(300)]
    assert all(as_fast(*pair) for pair in same)
