"""The clock: how long one call takes on the device, how sure that is, and whether the host was the bottleneck.

On a GPU the call is timed by device events. One call is always in flight while the next is enqueued: a device that rests between
samples runs them at a higher clock than any training run would see. A call that is too short for that waits behind a flush of the L2
cache, and behind a spin for as long as the host needs, so that the events see the kernel and not the Python in front of it. Where that
fails, `host_bound` says so. Calls so long that a full cache could save them less than 1 % are made without a flush: it is a rest, too.

A device changes its clock under load: seen on an H200, a kernel that draws much power runs at the full clock for 60 to 100 ms, now
and then for up to 150 ms (in some 40 of 1,246 cells), and is then slowed by up to 13 %, with samples that agree within 1 % on either
side of the step. So samples lie behind a warm-up under the same load, and are spread over as long a time as it took; and while they
still move, agreeing ones do not end it.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from longca.bench.gauge import Gauge, Readings

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Align = Callable[[], None]
FEWEST = 3  # samples, however long a call is
LEAST_SPIN_MS = 0.05
SPARE = 1.3  # times what the host needed last: how long the device spins for it
COVER = 2.0  # times the host's need that a call must last to hide it
LONG_MS = 50.0  # beside such a call the rest before the next one is nothing, and one call more than needed is much
HOST_SHARE = 0.01  # of a call's time: where enqueueing it takes less, a device that waits for the host loses nothing
MOVED = 2.5  # times the target by which samples may change and still pass for steady
APART = 0.05  # of the time that samples are spread over: the least between two of them
COLD_MS = 2.0  # filling 50 MB of cache from memory takes 10 to 20 us: 1 % of this


def _alone() -> None:
    """Nobody to wait for."""


@dataclass(frozen=True)
class Settings:
    """When to stop: with `least` samples or more, spread over `warmup_s` or more, as soon as the median is known to `target` (half width
    of its interval, relative) and samples no longer move; with three or more when the budget is spent; or with `most` samples."""

    warmup_s: float = 0.1
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
    stop: str  # "target": the median is known well enough, and steady; "budget": time ran out first; "most": there were enough samples
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


class Sample(NamedTuple):
    ms: float  # on the device
    late: bool  # the host was too slow: the device may have waited for it
    call_ms: float  # on the host


class Timer(Protocol):
    """Takes samples."""

    def samples(self, call: Call) -> Generator[Sample, None, None]:
        """Call again and again, without end; closing it leaves nothing running."""

    def now(self) -> float:
        """Seconds, for warm-up and budget."""


def measure(call: Call, timer: Timer, settings: Settings | None = None, gauge: Gauge | None = None, warmed_s: float = 0.0) -> Timing:
    """Warm up by time, less what was done of it; then sample until the median is known well enough or the budget ends."""
    settings, readings = settings or Settings(), Readings(gauge, timer.now)
    taken, stop = list[Sample](), "most"
    with closing(timer.samples(call)) as samples:
        start = timer.now() - warmed_s
        while timer.now() - start < settings.warmup_s:
            next(samples)
        start = timer.now()
        for sample in _apart(samples, timer, min(settings.warmup_s, settings.budget_s) * APART, settings.most):
            taken.append(sample)
            readings.take()
            passed_s = timer.now() - start
            enough = len(taken) >= settings.least and passed_s >= min(settings.warmup_s, settings.budget_s)
            if enough and steady([one.ms for one in taken], settings.target):
                stop = "target"
                break
            if passed_s >= settings.budget_s and len(taken) >= min(settings.least, FEWEST):
                stop = "budget"
                break
    ms, late, call_ms = zip(*taken, strict=True)
    return Timing(ms, sum(late) * 2 > len(late), statistics.median(call_ms), stop, readings.clock_mhz, readings.watts)


def _apart(samples: Iterator[Sample], timer: Timer, least_s: float, most: int) -> Iterator[Sample]:
    """Some of the samples, so that hundreds of short calls in a row do not pass for as many looks at the device."""
    last, left = -math.inf, most
    for sample in samples:
        if timer.now() - last >= least_s:
            last, left = timer.now(), left - 1
            yield sample
        if not left:
            return


def half_width(samples: Sequence[float]) -> float:
    """Half the width of an interval of the median, relative to it, from order statistics.

    It holds the median with 95 % or a little more from 6 samples on. Of fewer it is all of them, from the least to the greatest, and
    holds it with 94 % (5 samples), 88 % (4) or 75 % (3): no interval of so few can do better. One sample says nothing of it.
    """
    if len(samples) == 1:
        return math.inf
    ordered, n = sorted(samples), len(samples)
    reach = 0.98 * n**0.5  # ranks around the middle that hold the median with 95 %
    low, high = max(0, int((n - 1) / 2 - reach)), min(n - 1, int((n - 1) / 2 + reach + 0.999))
    middle = statistics.median(ordered)
    return (ordered[high] - ordered[low]) / 2 / middle if middle else 0.0


def steady(samples: Sequence[float], target: float) -> bool:
    """Whether the median is known to the target, and the last third of the samples has about the same one as the first.

    A step of the device's clock among the samples may leave the interval narrow, with all of it on one side of the step. Noise alone
    that just reaches the target fails this in 2 % of cells or fewer (simulated, normal and with outliers, 6 to 40 samples); what is
    quieter hardly ever does. Fewer than 6 samples that agree cannot differ by more: their interval is all of them.
    """
    if half_width(samples) > target:
        return False
    third = len(samples) // 3
    if third < 2:
        return True
    before, after = statistics.median(samples[:third]), statistics.median(samples[-third:])
    return abs(after - before) <= MOVED * target * statistics.median(samples)


class HostTimer:
    """For CPUs: the wall clock around the call. `align` is called just before, as ranks do that start together."""

    def __init__(self, align: Align = _alone) -> None:
        self._align = align

    def samples(self, call: Call) -> Generator[Sample, None, None]:
        while True:
            self._align()
            start = time.perf_counter()
            call()
            ms = (time.perf_counter() - start) * 1e3
            yield Sample(ms, False, ms)

    def now(self) -> float:
        return time.perf_counter()


class CudaTimer:
    """For one GPU: events around the call, behind a flush of the L2 cache and a spin where these are needed."""

    def __init__(self, align: Align = _alone) -> None:
        import torch

        self._align, self._ahead = align, int(align is _alone)  # ranks that start together do so one call at a time
        self._cuda = torch.cuda
        properties = torch.cuda.get_device_properties(0)
        self._flush = torch.empty(4 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self.spin_ms = LEAST_SPIN_MS  # ranks agree on one, else they would not start together
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

    def samples(self, call: Call) -> Generator[Sample, None, None]:
        flying, last_ms = deque[Flying](), 0.0
        self.spin_ms = LEAST_SPIN_MS  # what the call before this one needed says nothing
        try:
            while True:
                while len(flying) <= (self._ahead if last_ms < LONG_MS else 0):
                    covered = bool(flying) and last_ms > COVER * self.spin_ms  # the call in flight outlasts the enqueueing of the next
                    flying.append(self._enqueue(call, flush=last_ms < COLD_MS, spin=not covered))
                start, end, late, call_ms = flying.popleft()
                end.synchronize()
                last_ms = float(start.elapsed_time(end))
                yield Sample(last_ms, late and call_ms > HOST_SHARE * last_ms, call_ms)
        finally:
            self._cuda.synchronize()

    def _enqueue(self, call: Call, flush: bool, spin: bool) -> Flying:
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))
        if flush:
            self._flush.zero_()
        self._align()
        if spin:
            self._cuda._sleep(int(self.spin_ms * self._cycles_per_ms))
        start.record()
        began = time.perf_counter()
        call()
        call_ms = (time.perf_counter() - began) * 1e3
        end.record()
        late = start.query()  # the device is past the start although the host has only now finished: it may have waited
        # one slow call, such as a first one, must not make the device rest before all others: what it needed is soon forgotten
        self.spin_ms = min(max(LEAST_SPIN_MS, SPARE * call_ms, self.spin_ms / 2), 20.0)
        return Flying(start, end, late, call_ms)

    def now(self) -> float:
        return time.perf_counter()


class Flying(NamedTuple):
    """A call that is enqueued and not yet waited for."""

    start: torch.cuda.Event
    end: torch.cuda.Event
    late: bool
    call_ms: float


def timer_for(device: str, align: Align = _alone) -> Timer:
    return CudaTimer(align) if device == "cuda" else HostTimer(align)
