"""The GPU's timer on a pretended device: one stream, a host and a device clock, and everything takes a known time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, cycle, repeat
from types import SimpleNamespace

import pytest

from longca.bench.clock import timers
from longca.bench.clock.clock import Timing, measure, nothing
from longca.bench.clock.timers import LOAD_MS, LONGEST_LOAD_MS, CudaTimer
from longca.results.metrics import ReferenceClock
from longca.results.settings import ClockSettings

FLUSH_MS = 0.06


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu, self.at = gpu, float("inf")

    def record(self) -> None:
        self._gpu.work(0.0)
        self.at = self._gpu.stream

    def query(self) -> bool:
        return self.at <= self._gpu.host

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


class FakeGpu:
    """Milliseconds: `host` is now; `stream` is when all that was enqueued will be done. `mhz` are the clocks of the next samples. Until
    `shared_until`, another process uses half of the device."""

    def __init__(self) -> None:
        self.host = self.stream = 0.0
        self.order = list[str]()
        self.loads = list[float]()
        self.clocks = repeat(1500.0)
        self.shared_until = 0.0

    def Event(self, enable_timing: bool) -> FakeEvent:
        return FakeEvent(self)

    def work(self, ms: float, what: str = "") -> None:
        begin = max(self.stream, self.host)
        self.stream = begin + ms * (2 if begin < self.shared_until else 1)
        self.order += [what] if what else []

    def synchronize(self) -> None:
        self.host = max(self.host, self.stream)

    def current_stream(self) -> FakeGpu:
        return self

    def run(self, ms: float) -> int:
        self.loads.append(ms)
        self.work(ms, "load")
        return round(ms)

    def mhz(self) -> float:
        return next(self.clocks)

    def kernel(self, ms: float, host_ms: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.host += host_ms()
            self.work(ms, "call")

        return call


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setattr(timers, "perf_counter", lambda: gpu.host / 1e3)
    monkeypatch.setattr(timers, "sleep", lambda seconds: setattr(gpu, "host", gpu.host + seconds * 1e3))
    return gpu


def time_it(
    gpu: FakeGpu,
    call: Callable[[], None],
    settings: ClockSettings,
    align: Callable[[], None] = nothing,
    reference: ReferenceClock | None = None,
    before: Callable[[], None] = nothing,
) -> Timing:
    timer = CudaTimer.__new__(CudaTimer)
    timer._cuda, timer._align = gpu, align
    timer._usual, timer._is_alone = timers.Usual(), align is nothing
    timer._usual.is_exceeded(1.0)  # the product of an earlier load
    timer._load = gpu  # type: ignore[assignment]
    timer._clock = SimpleNamespace(begin=lambda: gpu.work(0, "begin"), end=lambda: gpu.work(0, "end"), mhz=gpu.mhz)  # type: ignore[assignment]
    timer._flush = SimpleNamespace(zero_=lambda: gpu.work(FLUSH_MS, "flush"))  # type: ignore[assignment]
    return measure(call, timer, settings, before=before, reference=reference)


@pytest.mark.parametrize("ms", [0.02, 0.5, 6.5, 200.0])
@pytest.mark.parametrize("host_ms", [0.01, 0.3, 4.0])
def test_the_kernel_is_timed_and_not_the_host(gpu: FakeGpu, ms: float, host_ms: float) -> None:
    timing = time_it(gpu, gpu.kernel(ms, lambda: host_ms), ClockSettings(), before=lambda: gpu.work(0.6))
    assert timing.median == pytest.approx(ms)
    assert timing.call_ms == pytest.approx(host_ms)
    assert not timing.host_bound


def test_every_sample_is_taken_from_the_same_state(gpu: FakeGpu) -> None:
    time_it(gpu, gpu.kernel(0.5, lambda: 0.1), ClockSettings(), align=lambda: gpu.work(0, "align"), before=lambda: gpu.work(0.6, "before"))
    steps = ["before", "load", "flush", "align", "begin", "call", "end"]
    assert gpu.order == steps * (len(gpu.order) // len(steps))
    assert set(gpu.loads) == {LOAD_MS}


def test_times_are_given_for_one_clock_whatever_the_device_does(gpu: FakeGpu) -> None:
    """4.5 million cycles, at 1,500 and at 1,125 MHz: 3 or 4 ms. At 1,000 MHz they would take 4.5 ms."""
    gpu.clocks, cycles = cycle([1500.0, 1125.0]), cycle([3.0, 4.0])
    timing = time_it(gpu, lambda: gpu.work(next(cycles)), ClockSettings(), reference=ReferenceClock(1000.0, 1800.0))
    assert set(timing.samples) == {4.5}
    assert (timing.stop, timing.at_mhz, set(timing.clocks)) == ("target", 1000.0, {1500.0, 1125.0})


@pytest.mark.parametrize(("mhz", "reference"), [(1500.0, None), (1900.0, ReferenceClock(1000.0, 1800.0))])
def test_without_such_a_clock_and_far_above_it_times_stay_as_measured(gpu: FakeGpu, mhz: float, reference: ReferenceClock | None) -> None:
    """A device that its power does not limit runs at its highest clock, and memory may bound the kernel."""
    gpu.clocks = repeat(mhz)
    timing = time_it(gpu, lambda: gpu.work(3.0), ClockSettings(), reference=reference)
    assert (set(timing.samples), timing.at_mhz, timing.clock_mhz) == ({3.0}, None, mhz)


@pytest.mark.parametrize("host_ms", [9.0, 30.0, 70.0])
def test_a_slow_host_gets_a_longer_load(gpu: FakeGpu, host_ms: float) -> None:
    timing = time_it(gpu, gpu.kernel(0.5, lambda: host_ms), ClockSettings())
    assert timing.median == pytest.approx(0.5)
    assert not timing.host_bound
    assert host_ms < gpu.loads[-1] <= LONGEST_LOAD_MS
    assert time_it(gpu, gpu.kernel(0.5, lambda: 2 * LONGEST_LOAD_MS), ClockSettings()).host_bound


@pytest.mark.parametrize(("host_ms", "bound"), [(0.2, False), (30.0, True)])
def test_a_call_that_starts_late_is_bound_by_the_host_only_if_that_takes_a_share_of_it(
    gpu: FakeGpu, host_ms: float, bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load is cut short, so it hides nothing: the device always waits for the host."""
    monkeypatch.setattr(gpu, "run", round)
    timing = time_it(gpu, gpu.kernel(60.0, lambda: host_ms), ClockSettings(warmup_s=0.1, least=10))
    assert timing.host_bound == bound
    assert timing.median == pytest.approx(60.0 + host_ms, rel=0.01)


@pytest.mark.parametrize("first_ms", [30.0, 100.0, 5000.0])
def test_one_slow_call_lengthens_only_the_loads_after_it(gpu: FakeGpu, first_ms: float) -> None:
    host_ms = chain([first_ms], repeat(0.2))
    timing = time_it(gpu, gpu.kernel(0.05, lambda: next(host_ms)), ClockSettings(warmup_s=0.2))
    assert max(timing.samples) == pytest.approx(0.05)
    assert not timing.host_bound
    assert gpu.loads[1] > LOAD_MS
    assert gpu.loads[-1] == LOAD_MS


@pytest.mark.parametrize(("busy_s", "ms"), [(0.0, 3.0), (0.3, 3.0), (4.0, 3.0), (60.0, 6.0)])
def test_samples_beside_another_process_do_not_count_while_it_may_end(gpu: FakeGpu, busy_s: float, ms: float) -> None:
    gpu.shared_until = busy_s * 1e3
    timing = time_it(gpu, gpu.kernel(3.0, lambda: 0.1), ClockSettings())
    assert list(timing.samples) == pytest.approx([ms] * len(timing.samples))


def test_ranks_drop_no_samples(gpu: FakeGpu) -> None:
    """One that dropped a sample would wait for the others in the next one."""
    gpu.shared_until = 40.0
    timing = time_it(gpu, gpu.kernel(3.0, lambda: 0.1), ClockSettings(warmup_s=0.0), align=lambda: None)
    assert timing.samples[0] == pytest.approx(6.0)
