"""How long after a load begins does a kernel's time settle? The clock's warm-up must be longer.

    python benchmarks/settling.py [--kernels fa4,flex]

Each kernel is called back to back for two seconds, on a device that rested for one. A row shows the median time per call in windows
since the load began, relative to the last window, and the end of the last window that is off by more than 1 %. Exit code 1 where that is
later than the clock's warm-up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import torch
from clock_accuracy import attention_call

from longca import masks
from longca.bench.clock import Settings
from longca.text import format_size

EDGES_MS = (0, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
STEADY, REST_S, AHEAD = 0.01, 1.0, 4
MASKS = (masks.full(8192), masks.causal(8192), masks.sliding_window(8192), masks.causal(32768))


def calls_in_a_row(call: Callable[[], object], lasting_ms: float) -> list[tuple[float, float]]:
    """(when it began, how long it took) of each call, in milliseconds since the load began."""
    call()  # compiles
    torch.cuda.synchronize()
    time.sleep(REST_S)
    events = [_recorded()]
    while len(events) <= AHEAD or events[0].elapsed_time(events[-1 - AHEAD]) < lasting_ms:
        call()
        events.append(_recorded())
        if len(events) > AHEAD:
            events[-1 - AHEAD].synchronize()  # the device always has some calls left to do
    torch.cuda.synchronize()
    times = [float(events[0].elapsed_time(event)) for event in events]
    return [(begun, ended - begun) for begun, ended in pairwise(times)]


def _recorded() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def windows(calls: list[tuple[float, float]]) -> list[float | None]:
    """The median of each window as a part of the last one's; None where no call began."""
    inside = [[ms for begun, ms in calls if low <= begun < high] for low, high in pairwise(EDGES_MS)]
    medians = [statistics.median(found) if found else None for found in inside]
    last = next(median for median in reversed(medians) if median is not None)
    return [None if median is None else median / last for median in medians]


def settled_ms(relative: list[float | None]) -> int:
    """When the last window that is off has ended."""
    off = [EDGES_MS[at + 1] for at, value in enumerate(relative) if value is not None and abs(value - 1) > STEADY]
    return max(off, default=0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="fa4,flex,sdpa:cudnn")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("this needs a CUDA device.", file=sys.stderr)
        return 2
    latest = 0
    print(f"{'until, ms':>34} {'ms/call':>8} " + " ".join(f"{edge:>5}" for edge in EDGES_MS[1:]))
    for label in args.kernels.split(","):
        for mask in MASKS:
            found = calls_in_a_row(attention_call(label, mask), EDGES_MS[-1])
            relative = windows(found)
            latest = max(latest, settled_ms(relative))
            title = f"{label} {mask.name} {format_size(mask.seqlen_q)}"
            cells = " ".join("    -" if value is None else f"{value:5.3f}" for value in relative)
            print(f"{title:>34} {found[-1][1]:8.3f} {cells}  off until {settled_ms(relative)} ms", flush=True)
    warmup_ms = Settings().warmup_s * 1e3
    print(f"all are within {STEADY:.0%} after {latest} ms; the clock warms up for {warmup_ms:g} ms")
    return int(latest > warmup_ms)


if __name__ == "__main__":
    sys.exit(main())
