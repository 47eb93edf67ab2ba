"""Timers that take samples: the wall clock on a CPU, device events on a GPU.

On a GPU one call is always in flight while the next is enqueued: a device that rests between samples runs them at a higher clock than
any training run would see. A call that is too short for that waits behind a flush of the L2 cache, and behind a spin for as long as the
host needs, so that the events see the kernel and not the Python in front of it. Where that fails, `host_bound` says so. Calls so long
that a full cache could save them less than 1 % are made without a flush: it would be a rest, too.

What is done before a timed call (inputs change, outputs are summed, the cache is flushed) draws little power: seen on an H200, kernels of
2 ms ran at 525 W instead of 650 W beside it, and up to 10 % faster than in a loop. So calls that are not timed keep the device under load
for `LOAD` times as long. Calls that take the host about as long as the device cannot do that, and none are made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from longca.bench.clock.clock import Call, Sample, Timer

if TYPE_CHECKING:
    import torch

Align = Callable[[], None]
LEAST_SPIN_MS = 0.05
SPARE = 1.3  # times what the host needed last: how long the device spins for it
COVER = 2.0  # times the host's need that calls must last to hide it
LONG_MS = 50.0  # beside such a call the rest before the next one is nothing, and one call more than needed is much
HOST_SHARE = 0.01  # of a call's time: where enqueueing it takes less, a device that waits for the host loses nothing
LOAD, MOST_LOADS = 19, 40  # times the rest before a call that the device is kept busy after it, in at most so many calls
COLD_MS = 2.0  # filling 50 MB of cache from memory takes 10 to 20 us: 1 % of this


def _alone() -> None:
    """Waits for nobody."""


class HostTimer:
    """For CPUs: the wall clock around the call. `align` is called just before, as ranks do that start together."""

    def __init__(self, align: Align = _alone) -> None:
        self._align = align

    def samples(self, call: Call, before: Call = _alone, load: Call | None = None) -> Generator[Sample, None, None]:
        while True:
            before()
            self._align()
            start = perf_counter()
            call()
            ms = (perf_counter() - start) * 1e3
            yield Sample(ms, False, ms)

    def now(self) -> float:
        return perf_counter()


class CudaTimer:
    """For one GPU: events around the call, behind a flush of the L2 cache and a spin where these are needed."""

    def __init__(self, align: Align = _alone) -> None:
        import torch

        self._align, self._ahead = align, int(align is _alone)  # ranks that start together do so one call at a time
        self._cuda = torch.cuda
        properties = torch.cuda.get_device_properties(0)
        self._flush = torch.empty(4 * properties.L2_cache_size, dtype=torch.int8, device="cuda")
        self.spin_ms = LEAST_SPIN_MS  # ranks agree on one, else they would not start together
        self.loads = 0  # calls that follow a timed one; ranks agree on their number, as the calls of all ranks belong together
        self._busy_until = 0.0  # on the host's clock: when the device will have done what it was given, about
        self._calls = 0  # that the device was given, timed or not
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

    def samples(self, call: Call, before: Call = _alone, load: Call | None = None) -> Generator[Sample, None, None]:
        flying, last_ms = deque[Flying](), 0.0
        self.spin_ms, self.loads, self._busy_until, self._calls = LEAST_SPIN_MS, 0, 0.0, 0  # another call's need says nothing
        try:
            while True:
                while len(flying) <= (self._ahead if last_ms < LONG_MS else 0):
                    flying.append(self._enqueue(call, before, last_ms))
                    if load is not None and not self._keep_busy(load, last_ms):
                        load, self.loads = None, 0
                rest, start, end, late, call_ms, number = flying.popleft()
                end.synchronize()
                last_ms = float(start.elapsed_time(end))
                self._correct(last_ms, len(flying), self._calls - number)
                if load is not None:
                    keeps_up = COVER * call_ms < last_ms
                    self.loads = min(MOST_LOADS, int(LOAD * float(rest.elapsed_time(start)) / last_ms)) if keeps_up else 0
                yield Sample(last_ms, late and call_ms > HOST_SHARE * last_ms, call_ms)
        finally:
            self._cuda.synchronize()

    def _keep_busy(self, load: Call, ms: float) -> bool:
        """Makes the calls that are not timed; False where there is no memory for their outputs beside those of the timed call. A rank
        that has none fails: it cannot leave out calls that others make."""
        try:
            for _ in range(self.loads):
                load()
                self._called(ms)
        except self._cuda.OutOfMemoryError:
            if not self._ahead:
                raise
            return False
        return True

    def _called(self, ms: float) -> None:
        """Notes that the device has one more call to do, which takes about so long."""
        self._calls += 1
        self._expect(ms)

    def _expect(self, ms: float) -> None:
        """Notes that the device has so much more to do."""
        self._busy_until = max(self._busy_until, perf_counter()) + ms / 1e3

    def _correct(self, ms: float, fewest: int, most: int) -> None:
        """Corrects when the device will be done, as a call of `ms` has just ended: between the `fewest` and the `most` calls are left. What
        was expected of a call that took unusually long, such as a first one, is forgotten."""
        now = perf_counter()
        self._busy_until = min(max(self._busy_until, now + fewest * ms / 1e3), now + most * ms / 1e3)

    def _enqueue(self, call: Call, before: Call, last_ms: float) -> Flying:
        rest, start, end = (self._cuda.Event(enable_timing=True) for _ in range(3))
        rest.record()
        before()
        if last_ms < COLD_MS:
            self._flush.zero_()
        self._align()
        in_flight_ms = (self._busy_until - perf_counter()) * 1e3
        if in_flight_ms <= COVER * self.spin_ms or not self._ahead:  # else the device is busy until the call is enqueued
            self._cuda._sleep(int(self.spin_ms * self._cycles_per_ms))
            self._expect(self.spin_ms)
        start.record()
        began = perf_counter()
        call()
        call_ms = (perf_counter() - began) * 1e3
        end.record()
        self._called(last_ms)
        late = start.query()  # the device is past the start although the host has only now finished: it may have waited
        # one slow call, such as a first one, must not make the device rest before all others: what it needed is soon forgotten
        self.spin_ms = min(max(LEAST_SPIN_MS, SPARE * call_ms, self.spin_ms / 2), 20.0)
        return Flying(rest, start, end, late, call_ms, self._calls)

    def now(self) -> float:
        return perf_counter()


class Flying(NamedTuple):
    """A call that is enqueued and not yet waited for; the device rests from `rest` to `start`."""

    rest: torch.cuda.Event
    start: torch.cuda.Event
    end: torch.cuda.Event
    late: bool
    call_ms: float
    number: int  # of this call among all that the device was given


def timer_for(device: str, align: Align = _alone) -> Timer:
    return CudaTimer(align) if device == "cuda" else HostTimer(align)
