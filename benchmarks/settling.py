"""Which SM clock does a GPU hold under load, and do a kernel's cycles depend on the clock?

    python benchmarks/settling.py [--kernels fa3,cudnn_flex]

First the load that precedes every sample, then each kernel, runs back to back for two seconds on a device that rested for one. A row
shows the clock in windows since the load began, and the cycles per call in them as a part of those in the last window. The last line is
the clock that the load holds from half a second on: `SETTLED_MHZ` in results/metrics.py has it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import torch
from clock_accuracy import attention_call

from longca import masks
from longca.bench.clock.device_state import Load, SmClock
from longca.errors import Refused
from longca.text import format_size

EDGES_MS = (0, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
REST_S, WINDOW_MS, SETTLED_MS = 1.0, 10.0, 500.0
MASKS = (masks.full(8192), masks.sliding_window_causal(8192), masks.causal(32768))
Window = tuple[float, float, float]  # milliseconds since the load began, MHz, and millions of cycles per call


def windows_of(call: Callable[[], object]) -> list[Window]:
    """Windows of about 10 ms, after calls that compile and one that shows how long a call takes."""
    for _ in range(3):
        SmClock().begin()  # compiles, too
        start = _recorded()
        call()
        end = _recorded()
    end.synchronize()
    calls = max(1, round(WINDOW_MS / start.elapsed_time(end)))
    number = round(EDGES_MS[-1] / max(WINDOW_MS, start.elapsed_time(end)))
    clocks = [SmClock() for _ in range(number)]
    torch.cuda.synchronize()
    time.sleep(REST_S)
    events = [_recorded()]
    for clock in clocks:
        clock.begin()
        for _ in range(calls):
            call()
        clock.end()
        events.append(_recorded())
    torch.cuda.synchronize()
    times, mhz = [float(events[0].elapsed_time(event)) for event in events], [clock.mhz() or 0.0 for clock in clocks]
    return [(begun, at, (ended - begun) * at / calls / 1e3) for (begun, ended), at in zip(pairwise(times), mhz, strict=True)]


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def row(name: str, windows: list[Window]) -> str:
    """Medians of the windows that began between two edges."""
    texts, last = [], windows[-1][2]
    for low, high in pairwise(EDGES_MS):
        inside = [window for window in windows if low <= window[0] < high]
        mhz, cycles = (statistics.median(window[kind] for window in inside) if inside else 0.0 for kind in (1, 2))
        texts.append(f"{mhz:5.0f} {cycles / last:.3f}" if inside else f"{'-':>11}")
    return f"{name:>40} {last:8.3f}  " + "  ".join(texts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="sdpa:cudnn,sdpa:flash", metavar="A,B")
    args = parser.parse_args()
    print(f"{'from, ms':>40} {'Mcycles':>8}  " + "  ".join(f"{low:>11}" for low in EDGES_MS[:-1]))
    load = Load()
    under_load = windows_of(lambda: load.run(1.0))
    print(row("the load", under_load))
    for kernel in args.kernels.split(","):
        for mask in MASKS:
            with suppress(Refused):
                print(row(f"{kernel} {mask.name} {format_size(mask.seqlen_q)}", windows_of(attention_call(kernel, mask).load)), flush=True)
    settled = statistics.median(mhz for begun, mhz, _ in under_load if begun >= SETTLED_MS)
    print(f"the load holds {settled:.0f} MHz from {SETTLED_MS:.0f} ms on")


if __name__ == "__main__":
    main()
