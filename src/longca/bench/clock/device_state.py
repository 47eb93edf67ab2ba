"""What brings a GPU into the same state before every sample, and what reads its SM clock during one.

Seen on an H200: the SM clock is 1,980 MHz at rest, about 1,640 MHz in the first matrix products and 1,420 MHz after 65 ms of them, with
dips to 1,100 MHz, as power nears its limit. A kernel's time follows the clock, its cycles hardly do. So every sample follows the same
load, and the cycles that pass during it are read from the SMs themselves: a driver's reading is of some moment before.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

SIZE = 4096  # of the matrices of the load: 96 MiB in all
CALIBRATION = 20  # products before and during the measurement of one
SLOTS = 1024  # more than a device has SMs
SOURCE = """
extern "C" __global__ void read_clock(long long* slots, int count) {
    unsigned sm;
    long long cycles, nanoseconds;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %clock64;" : "=l"(cycles));
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    if (sm < count) { slots[2 * sm] = cycles; slots[2 * sm + 1] = nanoseconds; }
}
"""


class Load:
    """A product of random bf16 matrices, repeated: what surrounds attention in training, and what draws the most power."""

    def __init__(self) -> None:
        generator = torch.Generator("cuda").manual_seed(0)
        self._a, self._b = (torch.randn(SIZE, SIZE, generator=generator, device="cuda").bfloat16() for _ in range(2))
        self._out = torch.empty_like(self._a)
        self._ms = self._calibrate()

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return self._a, self._b, self._out

    def run(self, ms: float) -> int:
        """Keeps the device busy for about so long; returns the number of products."""
        products = math.ceil(ms / self._ms)
        self._repeat(products)
        return products

    def _repeat(self, times: int) -> None:
        for _ in range(times):
            torch.mm(self._a, self._b, out=self._out)

    def _calibrate(self) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._repeat(CALIBRATION)
        start.record()
        self._repeat(CALIBRATION)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / CALIBRATION


@cache
def _reader() -> Any:
    return torch.cuda._compile_kernel(SOURCE, "read_clock")


class SmClock:
    """Reads the average SM clock of a window: cycles that the SMs counted over nanoseconds that passed."""

    def __init__(self) -> None:
        self._blocks = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
        self._first, self._last = (torch.zeros(SLOTS, 2, dtype=torch.int64, device="cuda") for _ in range(2))

    def begin(self) -> None:
        """Forgets the readings before, and enqueues the first one."""
        self._first.zero_()
        self._last.zero_()
        self._enqueue(self._first)

    def end(self) -> None:
        """Enqueues the last reading."""
        self._enqueue(self._last)

    def _enqueue(self, slots: torch.Tensor) -> None:
        _reader()(grid=(self._blocks, 1, 1), block=(32, 1, 1), args=[slots, SLOTS])

    def mhz(self) -> float | None:
        """Waits for both readings. Returns the median over SMs that gave both; None if none did."""
        first, last = self._first.cpu(), self._last.cpu()
        passed = (last - first)[(first[:, 1] > 0) & (last[:, 1] > first[:, 1])].double()
        return float((passed[:, 0] / passed[:, 1]).median()) * 1e3 if len(passed) else None


def sm_clock() -> SmClock | None:
    """None where torch cannot compile for the device."""
    try:
        clock = SmClock()
        clock.begin()
        clock.end()
        return clock if clock.mhz() is not None else None
    except Exception:  # the compiler's library is missing, or the device is none of NVIDIA's: each fails in its own way
        return None
