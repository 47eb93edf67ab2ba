"""Clocks for autotuning: milliseconds of one call on the device."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch

Call = Callable[[], object]
CYCLES_PER_S = 2e9  # of a GPU, about
SPIN_CYCLES, MOST_SPIN_CYCLES = 500_000, 10_000_000  # about .25 and 5 ms, in which the host enqueues a short call
LONG_MS = 50.0  # from which on a call needs no other before it: neither the spin nor the device's rest count


class Clock:
    """The wall clock around a call, for CPUs. `now` returns seconds, for budgets."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        self.now = now

    def sample(self, call: Call, earlier_ms: float = 0.0) -> float:
        """Returns the milliseconds of one call, which has ended. `earlier_ms` is what an earlier sample showed."""
        start = self.now()
        call()
        return (self.now() - start) * 1e3


class CudaClock(Clock):
    """For GPUs: device events around the second of two calls. While a spin and the first one run, the host enqueues the second, and the
    device is under the load that it has in training: one that rests before each sample runs at a higher clock. The spin grows until the
    slowest host call seen so far fits into it. Of long calls one does."""

    _spin = SPIN_CYCLES

    def sample(self, call: Call, earlier_ms: float = 0.0) -> float:
        cuda: Any = torch.cuda
        start, end = (cuda.Event(enable_timing=True) for _ in range(2))
        cuda._sleep(self._spin)
        begun = self.now()
        if earlier_ms < LONG_MS:
            call()
        start.record()
        call()
        end.record()
        self._spin = min(MOST_SPIN_CYCLES, max(self._spin, int(1.5 * CYCLES_PER_S * (self.now() - begun))))
        end.synchronize()
        return float(start.elapsed_time(end))


def clock_for(device: str) -> Clock:
    return CudaClock() if device == "cuda" else Clock()
