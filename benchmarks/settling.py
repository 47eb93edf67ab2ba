"""How long after a load begins does a kernel's time settle? The clock's warm-up must be longer.

    python benchmarks/settling.py [--kernels fa4,flex]

Each kernel is called back to back for two seconds, on a device that rested for one. A row shows the median time per call in windows
since the load began, relative to the last window, and by how much windows behind the shortest warm-up of a suite for GPUs are off at most.
Exit code 1 where that is more than `longca compare` calls a change.
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
from longca.bench.plan import suite
from longca.results.ranking import PRACTICAL
from longca.text import format_size

EDGES_MS = (0, 10, 20, 40, 60, 80, 100, 150, 200, 300, 500, 1000, 2000)
REST_S, AHEAD = 1.0, 4
MASKS = (masks.full(8192), masks.causal(8192), masks.sliding_window(8192), masks.causal(32768))


def calls_in_a_row(call: Callable[[], object], lasting_ms: float) -> list[tuple[float, float]]:
    """(when it began, how long it took) of each call, in milliseconds since the load began."""
    for _ in range(2):  # the first one compiles, and the second may do so again
        call()
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


def left_over(relative: list[float | None], warmup_ms: float) -> float:
    """By how much the windows that begin behind the warm-up are off at most."""
    return max(abs(value - 1) for value, begun in zip(relative, EDGES_MS, strict=False) if value is not None and begun >= warmup_ms)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="fa4,flex,sdpa:cudnn")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("this needs a CUDA device.", file=sys.stderr)
        return 2
    most, warmup_ms = 0.0, 1e3 * min(suite.find(name).clock.warmup_s for name in ("paper-kernel", "paper-sparse", "magi-kernel"))
    print(f"{'until, ms':>34} {'ms/call':>8} " + " ".join(f"{edge:>5}" for edge in EDGES_MS[1:]))
    for label in args.kernels.split(","):
        for mask in MASKS:
            found = calls_in_a_row(attention_call(label, mask), EDGES_MS[-1])
            relative = windows(found)
            off = left_over(relative, warmup_ms)
            most = max(most, off)
            title = f"{label} {mask.name} {format_size(mask.seqlen_q)}"
            cells = " ".join("    -" if value is None else f"{value:5.3f}" for value in relative)
            print(f"{title:>34} {found[-1][1]:8.3f} {cells}  then off by {off:.1%}", flush=True)
    print(f"behind a warm-up of {warmup_ms:g} ms all are within {most:.1%} of where they stay; a change is {PRACTICAL:.0%}")
    return int(most > PRACTICAL)


if __name__ == "__main__":
    sys.exit(main())
