"""The clock: how long one call takes on the device, how sure that is, and whether the host was the bottleneck.

Samples follow a warm-up and are spread over time, because a device changes under load and a shared machine from moment to moment. While
samples still move, agreeing ones do not end the sampling.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from longca.results.metrics import ReferenceClock
from longca.results.settings import ENOUGH, EXTENSION, FEWEST, LAST_S, LONG_MS, ClockSettings

Call = Callable[[], object]
MOVED = 2.5  # times the target by which samples may change and still pass for steady
APART = 0.05  # of the time that samples are spread over: the least between two of them


def nothing() -> None:
    """Does nothing."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds per call: median, the 20th and 80th percentile, and every sample in order."""

    samples: tuple[float, ...]
    host_bound: bool
    call_ms: float  # on the host
    means: tuple[float, ...] = ()  # over ranks, of each sample; empty on one device
    stop: str = "most"  # "target": the median is known well enough, and steady; "budget": time ran out; "most": enough samples
    clocks: tuple[float, ...] = ()  # the device's MHz in each sample; empty where nobody can read them
    at_mhz: float | None = None  # the clock that the samples are given for; None: as measured

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def percentile(self, percent: int) -> float:
        ordered = sorted(self.samples)
        return ordered[round((len(ordered) - 1) * percent / 100)]

    @property
    def spread(self) -> float:
        return half_width(self.samples)

    @property
    def clock_mhz(self) -> float | None:
        return statistics.median(self.clocks) if self.clocks else None


class Sample(NamedTuple):
    ms: float  # on the device
    late: bool  # the host was too slow: the device may have waited for it
    call_ms: float  # on the host
    mean_ms: float | None = None  # over ranks, where `ms` is the slowest rank's
    mhz: float | None = None  # the device's clock meanwhile


class Timer(Protocol):
    """Takes samples."""

    def samples(self, call: Call, before: Call = nothing) -> Generator[Sample, None, None]:
        """Calls again and again, without end, each time after an untimed `before`."""

    def now(self) -> float:
        """Seconds, for warm-up and budget."""


def measure(
    call: Call,
    timer: Timer,
    settings: ClockSettings | None = None,
    warmed_s: float = 0.0,
    before: Call = nothing,
    reference: ReferenceClock | None = None,
) -> Timing:
    """Warms up by time, less what was done already; then samples until the median is known well enough or the budget ends. Times are given
    for the `reference` clock, if the device ran near it."""
    settings = settings or ClockSettings()
    taken, stop = list[Sample](), "most"
    with closing(timer.samples(call, before)) as samples:
        start = timer.now() - warmed_s
        while timer.now() - start < settings.warmup_s:
            next(samples)
        start = timer.now()
        for sample in _apart(samples, timer, min(settings.warmup_s, settings.budget_s) * APART, settings.most):
            taken.append(sample)
            passed_s = timer.now() - start
            least = settings.least if taken[0].ms <= LONG_MS else math.ceil(settings.least / 2)
            enough = len(taken) >= least and passed_s >= min(settings.warmup_s, settings.budget_s)
            if enough and steady(at_one_clock(taken, reference)[0], settings.target):
                stop = "target"
                break
            budget_s = settings.budget_s * (1 if len(taken) >= max(least, ENOUGH) else EXTENSION)
            if passed_s >= budget_s and len(taken) >= min(least, FEWEST if passed_s >= LAST_S else least):
                stop = "budget"
                break
    given, at_mhz = at_one_clock(taken, reference)
    return Timing(
        samples=tuple(given),
        host_bound=sum(sample.late for sample in taken) * 2 > len(taken),
        call_ms=statistics.median(sample.call_ms for sample in taken),
        means=tuple(sample.mean_ms for sample in taken if sample.mean_ms is not None),
        stop=stop,
        clocks=tuple(sample.mhz for sample in taken if sample.mhz is not None),
        at_mhz=at_mhz,
    )


def at_one_clock(taken: Sequence[Sample], reference: ReferenceClock | None) -> tuple[list[float], float | None]:
    """The times of samples, and the clock that they are given for; None: they are as measured. A kernel's cycles hardly depend on the clock
    of a device that its power limits. Above the reference's most MHz that is not so: memory rather than the SMs may bound the kernel."""
    clocks = [sample.mhz for sample in taken if sample.mhz is not None]
    if reference is None or len(clocks) < len(taken) or statistics.median(clocks) > reference.most_mhz:
        return [sample.ms for sample in taken], None
    return [sample.ms * mhz / reference.at_mhz for sample, mhz in zip(taken, clocks, strict=True)], reference.at_mhz


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
