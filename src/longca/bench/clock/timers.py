"""Timers that take samples: the wall clock on a CPU, device events on a GPU.

On a GPU every sample is taken from the same state of the device, whatever the kernel does and however long its host code takes: inputs
change, a fixed load runs (device_state.py), the L2 cache is flushed, and the call follows at once. While the load runs, the host enqueues
the call, so that the events see the kernel and not the Python in front of it; `late` says where the load was too short for that.

The clock that the device has during a sample still depends on its power, so it is read with each sample (`measure` uses it).

Where the load takes far longer than it did before, another process uses the device, and the sample is dropped. A compiler that is stopped
(one_device/ahead.py) leaves such work: calls that it had made already.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from time import perf_counter, sleep

from longca.bench.clock.clock import Call, Sample, Timer, nothing

Align = Callable[[], None]
LOAD_MS, LONGEST_LOAD_MS = 10.0, 100.0  # before a sample
SPARE = 1.3  # times what the host needed last: how long the load lasts for it
DISTURBED = 1.8  # times what a product of the load took at least: another process uses the device
PAUSE_S, PATIENCE_S = 0.05, 5.0  # after a sample that was disturbed, and until such samples of a call count, too
HOST_SHARE = 0.01  # of a call's time: where enqueueing it takes less, a device that waits for the host loses nothing


class Usual:
    """What one product of the load takes at least."""

    def __init__(self) -> None:
        self._least = math.inf

    def is_exceeded(self, ms: float) -> bool:
        """Whether a product took so long that the device worked for others, too. The clock alone makes it up to 1.6 times as long."""
        self._least = min(self._least, ms)
        return ms > DISTURBED * self._least


class HostTimer:
    """For CPUs: the wall clock around the call. `align` is called just before, as ranks do that start together."""

    def __init__(self, align: Align = nothing) -> None:
        self._align = align

    def samples(self, call: Call, before: Call = nothing) -> Generator[Sample, None, None]:
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
    """For one GPU. `align` is enqueued behind the load, as by ranks that start together. On a `shared` GPU no clock is read: counters of
    SMs that other processes use were seen to jump back."""

    def __init__(self, align: Align = nothing, shared: bool = False) -> None:
        import torch

        from longca.bench.clock.device_state import Load, sm_clock

        self._cuda, self._align = torch.cuda, align
        self._usual, self._is_alone = Usual(), align is nothing and not shared  # ranks drop no samples: they take each one together
        cache_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.empty(4 * cache_bytes, dtype=torch.int8, device="cuda")
        self._load, self._clock = Load(), None if shared else sm_clock()

    @property
    def own_bytes(self) -> int:
        """What the timer occupies on the device; not the kernel's memory."""
        return sum(tensor.nbytes for tensor in (self._flush, *self._load.tensors))

    def samples(self, call: Call, before: Call = nothing) -> Generator[Sample, None, None]:
        load_ms, patience_s = LOAD_MS, PATIENCE_S
        while True:
            began = perf_counter()
            sample, is_disturbed = self._sample(call, before, load_ms)
            # a host that was slow once, as in a first call, is soon forgotten
            load_ms = min(max(LOAD_MS, SPARE * sample.call_ms, load_ms / 2), LONGEST_LOAD_MS)
            if is_disturbed and patience_s > 0:
                sleep(PAUSE_S)
                patience_s -= perf_counter() - began
                continue
            yield sample

    def _sample(self, call: Call, before: Call, load_ms: float) -> tuple[Sample, bool]:
        """A sample, and whether another process used the device just before it."""
        load_start, load_end, start, end = (self._cuda.Event(enable_timing=True) for _ in range(4))
        before()
        load_start.record()
        products = self._load.run(load_ms)
        load_end.record()
        self._flush.zero_()
        self._align()
        if self._clock:
            self._clock.begin()
        start.record()
        began = perf_counter()
        call()
        call_ms = (perf_counter() - began) * 1e3
        end.record()
        late = start.query()  # the device is past the start although the host has only now finished: it may have waited
        if self._clock:
            self._clock.end()
        self._cuda.current_stream().synchronize()
        ms = float(start.elapsed_time(end))
        sample = Sample(ms, late and call_ms > HOST_SHARE * ms, call_ms, mhz=self._clock.mhz() if self._clock else None)
        return sample, self._usual.is_exceeded(float(load_start.elapsed_time(load_end)) / products) if self._is_alone else False

    def now(self) -> float:
        return perf_counter()


def timer_for(device: str, align: Align = nothing, shared: bool = False) -> Timer:
    return CudaTimer(align, shared) if device == "cuda" else HostTimer(align)
