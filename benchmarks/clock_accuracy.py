"""Is the clock right? On a GPU: a kernel that spins for a known time, and a bare loop around a real kernel.

    python benchmarks/clock_accuracy.py

Prints a table and ends with exit code 1 where a spin is off by more than 3 %, or the clock and the bare loop differ by more than 2 %.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from longca import masks
from longca.bench.clock import CudaTimer, Settings, measure
from longca.kernels import inputs, registry
from longca.kernels.base import Case

SPIN_MS = (0.5, 2.0, 10.0)
SPIN_LIMIT, LOOP_LIMIT = 0.03, 0.02
# the device's own clock of nanoseconds, so that the length does not depend on the SM clock
SOURCE = """
extern "C" __global__ void spin(int nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < nanoseconds);
}
"""


def bare_loop(call: Callable[[], object], times: int) -> float:
    """Milliseconds per call of calls back to back, as anybody would time them by hand."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    start.record()
    for _ in range(times):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / times


def attention_call(label: str, seqlen: int) -> Callable[[], object]:
    mask = masks.causal(seqlen)
    case = Case(seqlen, seqlen, 64, 8, 128, 128, "bf16", "cuda", backward=False)
    kernel = registry.choose(label, mask, case)
    prepared = kernel.prepare(mask, case)
    q, k, v, _ = inputs.make(case, 0, kernel.layout)
    return lambda: prepared.forward(q, k, v)


def main() -> int:
    if not torch.cuda.is_available():
        print("this needs a CUDA device.", file=sys.stderr)
        return 2
    timer, settings, wrong = CudaTimer(), Settings(budget_s=1.0), 0
    spin = torch.cuda._compile_kernel(SOURCE, "spin")
    for length in SPIN_MS:
        timing = measure(lambda ns=int(length * 1e6): spin(args=[ns]), timer, settings)
        off = timing.median / length - 1
        wrong += abs(off) > SPIN_LIMIT
        about = f"{off:+.2%}, spread {timing.spread:.2%}, {len(timing.samples)} samples"
        print(f"spin of {length:5.1f} ms: measured {timing.median:8.4f} ms ({about})")
        alone = bare_loop(lambda ns=int(length * 1e6): spin(args=[ns]), 50)
        wrong += abs(timing.median / alone - 1) > LOOP_LIMIT
        print(f"    the bare loop says {alone:8.4f} ms ({timing.median / alone - 1:+.2%})")
    for label, seqlen in (("sdpa:flash", 8192), ("sdpa:cudnn", 16384)):
        call = attention_call(label, seqlen)
        timing = measure(call, timer, settings)
        alone = bare_loop(call, 100)
        off = timing.median / alone - 1
        wrong += abs(off) > LOOP_LIMIT
        about = f"clock {timing.median:8.4f} ms, bare loop {alone:8.4f} ms ({off:+.2%}), host bound: {timing.host_bound}"
        print(f"{label} causal {seqlen}: {about}")
    print("right" if not wrong else f"{wrong} figures are outside their limits")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
