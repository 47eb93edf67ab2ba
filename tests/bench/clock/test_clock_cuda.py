"""The GPU's timer on a pretended device: one stream, a host and a device clock, and everything takes a known time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from types import SimpleNamespace

import pytest
import torch

from longca.bench.clock import timers
from longca.bench.clock.clock import Timing, measure
from longca.bench.clock.timers import CudaTimer
from longca.results.settings import ClockSettings

FLUSH_MS, CYCLES_PER_MS = 0.06, 1000.0


class FakeEvent:
    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu, self.at = gpu, float("inf")

    def record(self) -> None:
        self._gpu.work(0.0)
        self.at = self._gpu.stream

    def query(self) -> bool:
        return self.at <= self._gpu.host

    def synchronize(self) -> None:
        self._gpu.host = max(self._gpu.host, self.at)

    def elapsed_time(self, end: FakeEvent) -> float:
        return end.at - self.at


class FakeGpu:
    """Milliseconds: `host` is now; `stream` is when all that was enqueued will be done; `spun` is how long the device spun."""

    OutOfMemoryError = torch.cuda.OutOfMemoryError

    def __init__(self) -> None:
        self.host = self.stream = self.spun = 0.0
        self.calls = 0

    def Event(self, enable_timing: bool) -> FakeEvent:
        return FakeEvent(self)

    def work(self, ms: float) -> None:
        self.stream = max(self.stream, self.host) + ms

    def _sleep(self, cycles: int) -> None:
        self.spun += cycles / CYCLES_PER_MS
        self.work(cycles / CYCLES_PER_MS)

    def synchronize(self) -> None:
        self.host = max(self.host, self.stream)

    def kernel(self, ms: float, host_ms: Callable[[], float]) -> Callable[[], None]:
        def call() -> None:
            self.calls += 1
            self.host += host_ms()
            self.work(ms)

        return call


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setattr(timers, "perf_counter", lambda: gpu.host / 1e3)
    return gpu


def time_it(
    gpu: FakeGpu, call: Callable[[], None], settings: ClockSettings, align: Callable[[], None] = timers._alone, **around: Callable[[], None]
) -> Timing:
    timer = CudaTimer.__new__(CudaTimer)
    timer._cuda, timer._align, timer._ahead, timer._cycles_per_ms = gpu, align, int(align is timers._alone), CYCLES_PER_MS
    timer._flush = SimpleNamespace(zero_=lambda: gpu.work(FLUSH_MS))  # type: ignore[assignment]
    return measure(call, timer, settings, **around)


@pytest.mark.parametrize("ms", [0.02, 0.5, 6.5, 200.0])
@pytest.mark.parametrize("host_ms", [0.01, 0.3, 4.0])
def test_the_kernel_is_timed_and_not_the_host(gpu: FakeGpu, ms: float, host_ms: float) -> None:
    timing = time_it(gpu, gpu.kernel(ms, lambda: host_ms), ClockSettings())
    assert timing.median == pytest.approx(ms)
    assert timing.call_ms == pytest.approx(host_ms)
    assert not timing.host_bound


def test_a_host_that_no_spin_can_hide_is_said(gpu: FakeGpu) -> None:
    assert time_it(gpu, gpu.kernel(1.0, lambda: 40.0), ClockSettings()).host_bound


@pytest.mark.parametrize(("host_ms", "bound"), [(0.2, False), (30.0, True)])
def test_a_call_that_starts_late_is_bound_by_the_host_only_if_that_takes_a_share_of_it(gpu: FakeGpu, host_ms: float, bound: bool) -> None:
    """Nothing is in flight before so long a call, and a spin that is cut short hides nothing: the device always waits for the host."""
    gpu._sleep = lambda cycles: None  # type: ignore[method-assign]
    timing = time_it(gpu, gpu.kernel(60.0, lambda: host_ms), ClockSettings(warmup_s=0.1, least=5))
    assert timing.host_bound == bound
    assert timing.median == pytest.approx(60.0 + host_ms)


def test_one_slow_call_does_not_make_the_device_rest_for_long(gpu: FakeGpu) -> None:
    host_ms = chain([15.0], repeat(0.1))  # the first one compiles
    timing = time_it(gpu, gpu.kernel(6.5, lambda: next(host_ms)), ClockSettings(warmup_s=0.05, least=30))
    assert len(timing.samples) == 30
    assert gpu.spun < 45  # 19.5, then half of it again and again
    assert gpu.stream - gpu.calls * 6.5 - gpu.spun < 16  # and nothing else but the first call's own time


@pytest.mark.parametrize("first_ms", [30.0, 49.0, 100.0, 500.0, 5000.0])
@pytest.mark.parametrize("loaded", [False, True])
def test_one_slow_call_does_not_make_the_host_part_of_later_times(gpu: FakeGpu, first_ms: float, loaded: bool) -> None:
    """The device waits inside the first call for the host, which compiles: no other call is expected to take so long."""
    host_ms = chain([first_ms], repeat(0.2))
    call = gpu.kernel(0.05, lambda: next(host_ms))
    timing = time_it(gpu, call, ClockSettings(), **({"load": call} if loaded else {}))
    assert max(timing.samples) == pytest.approx(0.05)
    assert not timing.host_bound


def test_a_device_under_load_never_waits(gpu: FakeGpu) -> None:
    time_it(gpu, gpu.kernel(6.5, lambda: 0.1), ClockSettings(warmup_s=0.05, least=30))
    assert gpu.stream == pytest.approx(gpu.calls * 6.5, rel=0.005)


@pytest.mark.parametrize("ms", [0.4, 2.0, 6.5])
def test_a_device_stays_under_load_though_inputs_change_between_calls(gpu: FakeGpu, ms: float) -> None:
    call, changes = gpu.kernel(ms, lambda: 0.1), []

    def change() -> None:
        changes.append(None)
        gpu.host += 0.2
        gpu.work(0.6)

    timing = time_it(gpu, call, ClockSettings(warmup_s=0.1, least=5), before=change, load=call)
    assert timing.median == pytest.approx(ms)
    assert not timing.host_bound
    assert gpu.calls * ms > 0.93 * gpu.stream
    assert len(changes) > len(timing.samples)  # those of the warm-up, too


@pytest.mark.parametrize(("ms", "host_ms"), [(0.05, 0.2), (0.13, 0.4), (0.4, 0.35), (0.7, 0.75), (1.0, 0.3), (1.0, 0.45)])
def test_a_load_does_not_make_a_host_that_is_slow_part_of_the_time(gpu: FakeGpu, ms: float, host_ms: float) -> None:
    """The device has done all calls of the load before the host enqueues the timed one."""
    call, loads = gpu.kernel(ms, lambda: host_ms), []

    def change() -> None:
        gpu.host += 0.3
        gpu.work(0.1)

    def load() -> None:
        loads.append(None)
        call()

    timing = time_it(gpu, call, ClockSettings(warmup_s=0.1, least=5), before=change, load=load)
    assert timing.median == pytest.approx(ms)
    assert max(timing.samples) == pytest.approx(ms)
    assert not timing.host_bound
    assert bool(loads) == (2 * host_ms < ms)


@pytest.mark.parametrize(("ms", "host_ms", "before_ms"), [(0.83, 0.5, 1.9), (0.55, 0.39, 1.1), (1.25, 0.88, 1.2), (1.4, 0.58, 2.3)])
def test_a_host_that_changes_inputs_slowly_is_no_part_of_the_time(gpu: FakeGpu, ms: float, host_ms: float, before_ms: float) -> None:
    """The device is idle whenever inputs have changed, so that no call is hidden behind another."""
    device_ms = chain([ms * 1.1] * 3, repeat(ms))  # the first calls are slower, and so is what is expected of the next ones

    def call() -> None:
        gpu.host += host_ms
        gpu.work(next(device_ms))

    def change() -> None:
        gpu.host += before_ms
        gpu.work(0.05)

    timing = time_it(gpu, call, ClockSettings(warmup_s=0.05), before=change, load=call)
    assert max(timing.samples) == pytest.approx(ms)
    assert not timing.host_bound


def test_a_load_that_needs_too_much_memory_is_left_out(gpu: FakeGpu) -> None:
    loads = []

    def load() -> None:
        loads.append(None)
        raise torch.cuda.OutOfMemoryError

    around = {"before": lambda: gpu.work(1.0), "load": load}
    timing = time_it(gpu, gpu.kernel(2.0, lambda: 0.1), ClockSettings(least=5), **around)
    assert timing.median == pytest.approx(2.0)
    assert len(loads) == 1
    with pytest.raises(torch.cuda.OutOfMemoryError):  # others would wait for this rank's part of the call
        time_it(gpu, gpu.kernel(2.0, lambda: 0.1), ClockSettings(least=5), align=lambda: None, **around)


def test_long_calls_are_made_no_more_often_than_needed(gpu: FakeGpu) -> None:
    timing = time_it(gpu, gpu.kernel(200.0, lambda: 0.1), ClockSettings(warmup_s=0.0, budget_s=0.1, least=3))
    assert (len(timing.samples), gpu.calls) == (3, 3)


def test_ranks_that_start_together_have_one_call_in_flight(gpu: FakeGpu) -> None:
    waiting = []
    call = gpu.kernel(1.0, lambda: 0.1)
    time_it(gpu, call, ClockSettings(least=5), align=lambda: waiting.append(gpu.stream - gpu.host))
    assert max(waiting) == pytest.approx(FLUSH_MS)  # nothing but the flush is enqueued when they meet
