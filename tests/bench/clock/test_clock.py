"""The clock, with a fake timer: when it stops, what it records."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from math import comb
from random import Random

import pytest

from longca.bench.clock.clock import APART, Call, Sample, half_width, measure, nothing, steady
from longca.bench.clock.timers import HostTimer
from longca.results.settings import ClockSettings


class FakeTimer:
    """Samples from a list; every sample takes its own time."""

    def __init__(self, times: Iterator[float], late: bool = False) -> None:
        self.times, self.late, self.time = times, late, 0.0

    def samples(self, call: Call, before: Call = nothing) -> Generator[Sample, None, None]:
        for ms in self.times:
            before()
            call()
            self.time += ms / 1e3
            yield Sample(ms, self.late, ms / 10)

    def now(self) -> float:
        return self.time


def constant(ms: float) -> Iterator[float]:
    while True:
        yield ms


def noisy(ms: float, noise: float) -> Iterator[float]:
    sign = 1
    while True:
        sign = -sign
        yield ms * (1 + sign * noise)


def test_a_quiet_call_stops_at_the_least_number_of_samples_and_a_noisy_one_at_the_most_or_at_the_budget() -> None:
    timing = measure(lambda: None, FakeTimer(constant(2.0)), ClockSettings(warmup_s=0.01, least=7))
    assert (timing.median, len(timing.samples), timing.stop, timing.host_bound) == (2.0, 7, "target", False)
    assert timing.call_ms == pytest.approx(0.2)
    timing = measure(lambda: None, FakeTimer(noisy(10.0, 0.3)), ClockSettings(budget_s=100.0, least=9, most=9))
    assert (timing.stop, len(timing.samples)) == ("most", 9)
    timing = measure(lambda: None, FakeTimer(noisy(10.0, 0.3)), ClockSettings(budget_s=0.5))
    assert (timing.stop, timing.spread > 0.1) == ("budget", True)
    assert 45 <= len(timing.samples) <= 55


def test_samples_of_short_calls_are_spread_over_time() -> None:
    """Hundreds of calls in a row are one look at a device whose clock wanders."""
    timer, settings = FakeTimer(noisy(0.01, 0.3)), ClockSettings(warmup_s=0.1, budget_s=0.5)
    assert len(measure(lambda: None, timer, settings).samples) <= 0.5 / (APART * 0.1) + 1


@pytest.mark.parametrize("count", [6, 10, 50, 200])
def test_the_interval_holds_the_median_as_often_as_it_says(count: int) -> None:
    ranks = [float(n) for n in range(1, count + 1)]
    reach = half_width(ranks) * (count + 1) / 2  # the interval is symmetric in ranks
    low = round((count + 1) / 2 - reach)
    missed = 2 * sum(comb(count, n) for n in range(low)) / 2**count
    assert missed <= 0.05


def test_warm_up_is_by_time_and_not_recorded() -> None:
    def slow_then_fast() -> Iterator[float]:
        yield from [100.0] * 3
        yield from constant(1.0)

    timing = measure(lambda: None, FakeTimer(slow_then_fast()), ClockSettings(warmup_s=0.3))
    assert max(timing.samples) == 1.0


def test_a_device_that_changes_its_clock_under_load_is_measured_behind_the_change() -> None:
    """As an H200 does 60 to 100 ms after a load begins: on either side of the step samples agree, so nothing else would show it."""

    def full_clock_first() -> Iterator[float]:
        yield from [4.0] * 15
        yield from constant(4.5)

    timer = FakeTimer(full_clock_first())
    timing = measure(lambda: None, timer, ClockSettings())
    assert (timing.median, timing.stop) == (4.5, "target")
    assert 0.2 <= timer.time < 0.21  # samples for as long as the warm-up


PAPER = ClockSettings(warmup_s=0.08, budget_s=0.16, target=0.01)


def after(first: int, step: float) -> Iterator[float]:
    """4 ms calls that become slower behind the warm-up and so many samples."""
    yield from [4.0] * (20 + first)
    yield from constant(4.0 * step)


def test_a_step_among_the_samples_is_not_taken_for_a_known_median() -> None:
    """Seen on an H200: most samples agree, so the median is known, to which side of the step it happens to lie."""
    timing = measure(lambda: None, FakeTimer(after(15, 1.1)), PAPER)
    assert (timing.samples[0], timing.samples[-1]) == (4.0, 4.4)
    assert half_width(timing.samples[:20]) <= PAPER.target  # where it would have ended
    assert timing.stop == "budget"
    assert sum(timing.samples) == pytest.approx(1e3 * PAPER.budget_s, abs=5)


def test_a_step_within_what_is_allowed_does_not_cost_the_budget() -> None:
    timing = measure(lambda: None, FakeTimer(after(15, 1.005)), PAPER)
    assert (timing.stop, len(timing.samples)) == ("target", 20)


@pytest.mark.parametrize("count", [6, 10, 20, 40])
def test_noise_that_just_reaches_the_target_seldom_passes_for_a_step(count: int) -> None:
    rng, target = Random(count), 0.01
    sigma = target * count**0.5 / (1.253 * 1.96)  # of which the median of so many has an interval of the target
    rows = [[1 + rng.gauss(0, sigma) for _ in range(count)] for _ in range(4000)]
    known = [row for row in rows if half_width(row) <= target]
    assert len(known) > 400
    assert sum(not steady(row, target) for row in known) <= 0.025 * len(known)


def test_what_was_warmed_up_already_counts() -> None:
    timer = FakeTimer(constant(1.0))
    measure(lambda: None, timer, ClockSettings(warmup_s=0.1), warmed_s=0.08)
    assert timer.time == pytest.approx(0.12, rel=0.05)


@pytest.mark.parametrize(("ms", "samples"), [(19.0, 10), (21.0, 5), (4900.0, 5), (11000.0, 3)])
def test_a_quiet_call_gets_ten_samples_a_long_one_five_and_one_of_many_seconds_three(ms: float, samples: int) -> None:
    timing = measure(lambda: None, FakeTimer(constant(ms)), ClockSettings())
    assert (len(timing.samples), timing.stop) == (samples, "target" if samples > 3 else "budget")


@pytest.mark.parametrize(("ms", "samples"), [(20.0, 25), (200.0, 9), (450.0, 5), (11000.0, 3)])
def test_a_noisy_long_call_gets_enough_samples_within_four_budgets(ms: float, samples: int) -> None:
    timing = measure(lambda: None, FakeTimer(noisy(ms, 0.05)), ClockSettings(budget_s=0.5))
    assert (len(timing.samples), timing.stop) == (pytest.approx(samples, abs=1), "budget")


def test_one_sample_knows_nothing() -> None:
    assert half_width([5.0]) == float("inf")
    timing = measure(lambda: None, FakeTimer(constant(5000.0)), ClockSettings(least=1))
    assert (len(timing.samples), timing.stop) == (1, "budget")
    timing = measure(lambda: None, FakeTimer(constant(1.0)), ClockSettings(least=1, most=1))
    assert (len(timing.samples), timing.stop) == (1, "most")
    assert len(measure(lambda: None, FakeTimer(constant(1.0)), ClockSettings(warmup_s=0.0, least=1)).samples) == 2


def test_what_is_done_before_each_call_is_not_part_of_its_time() -> None:
    order = list[str]()

    def change() -> None:
        time.sleep(0.02)
        order.append("change")

    timing = measure(lambda: order.append("call"), HostTimer(), ClockSettings(warmup_s=0.01, least=4, budget_s=0), before=change)
    assert order == ["change", "call"] * (len(order) // 2)  # in the warm-up too
    assert len(order) // 2 > len(timing.samples)
    assert max(timing.samples) < 20
