"""The clock: how long one call takes on the device, how sure that is, and whether the host was the bottleneck.

On a GPU the call is timed by device events. Before each sample the L2 cache is flushed, and the device spins for as long as the host
needs to enqueue the call, so that the events see the kernel and not the Python in front of it. Where that fails, `host_bound` says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from longca.bench.gauge import Gauge, Readings

Call = Callable[[], object]
Align = Callable[[], None]


def _alone() -> None:
    """Nobody to wait for."""


@dataclass(frozen=True)
class Settings:
    """When to stop: as soon as the median is known to `target` (half width of its interval, relative), the budget is spent, or there are
    `most` samples."""

    warmup_s: float = 0.05
    budget_s: float = 0.5
    target: float = 0.005
    least: int = 5
    most: int = 200
    energy_s: float = 0.0  # how long to repeat the call for its energy; 0: not at all


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call: median, the 20th and 80th percentile, and every sample in order."""

    samples: tuple[float, ...]
    host_bound: bool
    call_ms: float  # what the host spends in one call
    stop: str  # "target": the median is known well enough; "budget": time ran out first; "most": there were enough samples
    clock_mhz: float | None = None  # of the device, beside the samples
    watts: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def percentile(self, percent: int) -> float:
        ordered = sorted(self.samples)
        return ordered[round((len(ordered) - 1) * percent / 100)]

    @property
    def spread(self) -> float:
        return half_width(self.samples)


class Timer(Protocol):
    """Takes one sample."""

    def sample(self, call: Call) -> tuple[float, bool, float]:
        """(milliseconds on the device, whether the host was too slow, milliseconds on the host)"""

    def now(self) -> float:
        """Seconds, for warm-up and budget."""


def measure(call: Call, timer: Timer, settings: Settings | None = None, gauge: Gauge | None = None) -> Timing:
    """Warm up by time, then sample until the median is known well enough or the budget ends."""
    settings, readings = settings or Settings(), Readings(gauge, timer.now)
    start = timer.now()
    while True:
        timer.sample(call)
        if timer.now() - start >= settings.warmup_s:
            break
    taken, bound, host = list[float](), list[bool](), list[float]()
    start, stop = timer.now(), "most"
    while len(taken) < settings.most:
        ms, late, call_ms = timer.sample(call)
        taken.append(ms)
        bound.append(late)
        host.append(call_ms)
        readings.take()
        if len(taken) >= settings.least:
            if half_width(taken) <= settings.target:
                stop = "target"
                break
            if timer.now() - start >= settings.budget_s:
                stop = "budget"
                break
    return Timing(tuple(taken), sum(bound) * 2 > len(bound), statistics.median(host), stop, readings.clock_mhz, readings.watts)


def half_width(samples: list[float] | tuple[float, ...]) -> float:
    """Half the width of an interval of the median, relative to it, from order statistics.

    It holds the median with 95 % or a little more from 6 samples on. Of fewer it is all of them, from the least to the greatest, and
    holds it with 94 % (5 samples), 88 % (4) or 75 % (3): no interval of so few can do better.
    """
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * n**0.5  # ranks around the middle that hold the median with 95 %
    low, high = max(0, int((n - 1) / 2 - reach)), min(n - 1, int((n - 1) / 2 + reach + 0.999))
    middle = statistics.median(ordered)
    return (ordered[high] - ordered[low]) / 2 / middle if middle else 0.0


class HostTimer:
    """For CPUs: the wall clock around the call. `align` is called just before, as ranks do that start together."""

    def __init__(self, align: Align = _alone) -> None:
        self._align = align

    def sample(self, call: Call) -> tuple[float, bool, float]:
        self._align()
        start = time.perf_counter()
        call()
        ms = (time.perf_counter() - start) * 1e3
        return ms, False, ms

    def now(self) -> float:
        return time.perf_counter()


class CudaTimer:
    """For one GPU: events around the call, behind a flush of the L2 cache and a spin."""

    def __init__(self, align: Align = _alone) -> None:
        import torch

        self._align = align
        self._cuda = torch.cuda
        properties = torch.cuda.get_device_properties(0)
        self._flush = torch.empty(4 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self.spin_ms = 0.05  # ranks agree on one, else they would not start together
        self._cycles_per_ms = self._calibrate()

    @property
    def flush_bytes(self) -> int:
        """What the flush buffer occupies; not the kernel's memory."""
        return self._flush.numel()

    def _calibrate(self) -> float:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        cycles = 20_000_000
        for _ in range(2):  # the first one wakes the clocks
            start.record()
            self._cuda._sleep(cycles)
            end.record()
            end.synchronize()
        return cycles / float(start.elapsed_time(end))

    def sample(self, call: Call) -> tuple[float, bool, float]:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        self._align()
        self._cuda._sleep(int(self.spin_ms * self._cycles_per_ms))
        start.record()
        began = time.perf_counter()
        call()
        call_ms = (time.perf_counter() - began) * 1e3
        end.record()
        late = start.query()  # the device is past the start although the host has only now finished: it may have waited
        end.synchronize()
        self.spin_ms = min(max(self.spin_ms, 1.3 * call_ms), 20.0)
        return float(start.elapsed_time(end)), late, call_ms

    def now(self) -> float:
        return time.perf_counter()


def timer_for(device: str, align: Align = _alone) -> Timer:
    return CudaTimer(align) if device == "cuda" else HostTimer(align)
