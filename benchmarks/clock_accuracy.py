"""Is the clock right? On a GPU: a kernel that spins for a known time, and real kernels, timed as `longca run` does it, with inputs that
change between calls, beside a bare loop.

    python benchmarks/clock_accuracy.py

Prints a table and ends with exit code 1 where a spin is off by more than 0.3 % and 5 us (the launch of a kernel, which every time
contains), or the clock and the bare loop differ by more than 2 %.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from longca import masks
from longca.bench.check.calls import Calls
from longca.bench.check.check import KernelSubject
from longca.bench.clock.clock import Call, measure
from longca.bench.clock.device_state import SmClock
from longca.bench.clock.timers import CudaTimer
from longca.kernels import inputs, registry
from longca.kernels.base import Case
from longca.results.metrics import SETTLED_MHZ, ReferenceClock
from longca.results.problem import Pass
from longca.results.settings import ClockSettings

SPIN_MS = (0.5, 2.0, 10.0)
SLOW_HOST_MS = (
    (0.1, 0.4),
    (0.4, 0.3),
    (1.0, 0.4),
)  # spins, and what the host needs to enqueue one: about as much as many kernels of Python
SPIN_LIMIT, LAUNCH_MS, LOOP_LIMIT = 0.003, 0.005, 0.02
KERNELS = (("sdpa:cudnn", 4096), ("sdpa:flash", 8192), ("sdpa:cudnn", 8192), ("sdpa:cudnn", 16384), ("sdpa:flash", 32768))
ROUNDS, REST_S = 5, 0.2
REFERENCE = ReferenceClock(SETTLED_MHZ["H200"], math.inf)
# the device's own clock of nanoseconds, so that the length does not depend on the SM clock
SOURCE = """
extern "C" __global__ void spin(int nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


def bare_loop(call: Callable[[], object], times: int, warmup_s: float) -> float:
    """Milliseconds per call of calls back to back, at the clock that times are given for."""
    clock = SmClock()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    until = time.perf_counter() + warmup_s
    while time.perf_counter() < until:
        call()
        torch.cuda.synchronize()
    clock.begin()
    start.record()
    for _ in range(times):
        call()
    end.record()
    clock.end()
    end.synchronize()
    return float(start.elapsed_time(end)) / times * (clock.mhz() or REFERENCE.at_mhz) / REFERENCE.at_mhz


def behind_slow_host(call: Call, host_ms: float) -> None:
    """Calls after the host was busy for some time."""
    until = time.perf_counter() + host_ms / 1e3
    while time.perf_counter() < until:
        pass
    call()


class Timed(NamedTuple):
    """A call as the clock gets it; `load` is what a bare loop calls."""

    call: Call
    before: Call
    load: Call


def attention_call(label: str, mask: masks.Mask) -> Timed:
    case = Case(mask.seqlen_q, mask.seqlen_k, 64, 8, 128, 128, "bf16", "cuda", backward=False)
    kernel = registry.choose(label, mask, case)
    calls = Calls(KernelSubject(kernel, kernel.prepare(mask, case), case), inputs.make(case, 0, kernel.layout), case, 0)
    return Timed(calls.of(Pass.FWD), partial(calls.change, Pass.FWD), calls.load(Pass.FWD))


def beside_bare_loop(timed: Timed, timer: CudaTimer) -> tuple[float, float]:
    """(clock, bare loop) as medians of rounds that alternate, after the same warm-up."""
    settings, clock_ms, loop_ms = ClockSettings(budget_s=0.2, target=1e-9), [], []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        time.sleep(REST_S)
        timing = measure(timed.call, timer, settings, before=timed.before, reference=REFERENCE)
        clock_ms.append(timing.median)
        time.sleep(REST_S)
        loop_ms.append(bare_loop(timed.load, max(len(timing.samples), round(settings.budget_s * 1e3 / timing.median)), settings.warmup_s))
    return statistics.median(clock_ms), statistics.median(loop_ms)


def main() -> int:
    if not torch.cuda.is_available():
        print("this needs a CUDA device.", file=sys.stderr)
        return 2
    timer, wrong = CudaTimer(), 0
    spin = torch.cuda._compile_kernel(SOURCE, "spin")
    for length in SPIN_MS:
        timing = measure(lambda ns=int(length * 1e6): spin(args=[ns]), timer, ClockSettings(budget_s=1.0))
        off = timing.median / length - 1
        wrong += abs(off) > SPIN_LIMIT + LAUNCH_MS / length
        about = f"{off:+.2%}, spread {timing.spread:.2%}, {len(timing.samples)} samples"
        print(f"spin of {length:5.1f} ms: measured {timing.median:8.4f} ms ({about})")
    for length, host_ms in SLOW_HOST_MS:
        call = partial(behind_slow_host, partial(spin, args=[int(length * 1e6)]), host_ms)
        timing = measure(call, timer, ClockSettings(budget_s=1.0), before=partial(torch.cuda._sleep, 100_000))
        off = timing.median / length - 1
        wrong += abs(off) > SPIN_LIMIT + LAUNCH_MS / length
        print(f"spin of {length:5.1f} ms behind {host_ms:g} ms of the host: measured {timing.median:8.4f} ms ({off:+.2%})")
    calls = {f"{label} causal {seqlen}": attention_call(label, masks.causal(seqlen)) for label, seqlen in KERNELS}
    for name, timed in calls.items():
        clock_ms, loop_ms = beside_bare_loop(timed, timer)
        off = clock_ms / loop_ms - 1
        wrong += abs(off) > LOOP_LIMIT
        print(f"{name}: clock {clock_ms:8.4f} ms, bare loop {loop_ms:8.4f} ms ({off:+.2%})")
    print("right" if not wrong else f"{wrong} figures are outside their limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
