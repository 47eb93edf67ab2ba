"""Where the time of a call goes: torch's profiler, with a trace for Perfetto and an NVTX range around each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from longca.bench.one_device.messages import Spent

CALLS = 5  # that are profiled, after as many that warm up


@contextmanager
def marked(title: str, cuda: bool) -> Iterator[None]:
    """A range of this title in torch's trace and, on a GPU, for ncu and nsys."""
    import torch

    with torch.profiler.record_function(title):
        if cuda:
            torch.cuda.nvtx.range_push(title)
        yield
        if cuda:
            torch.cuda.nvtx.range_pop()


def profile(call: Callable[[], object], title: str, synchronize: Callable[[], None], cuda: bool, trace: Path) -> list[Spent]:
    """Writes the trace of some calls, and returns the milliseconds per call of each GPU kernel, or of each operation on a CPU; the longest
    first."""
    import torch

    kinds = torch.profiler.ProfilerActivity
    for _ in range(CALLS):
        call()
    synchronize()
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA] if cuda else [kinds.CPU]) as profiler:
        for _ in range(CALLS):
            with marked(title, cuda):
                call()
        synchronize()
    profiler.export_chrome_trace(str(trace))
    spent = []
    for event in profiler.key_averages():
        on_gpu = event.device_type.name == "CUDA"
        total_us = event.self_device_time_total if cuda else event.self_cpu_time_total
        if on_gpu == cuda and total_us > 0 and not (cuda and event.key == title):  # on a GPU the range itself has a time, too
            name = "Python, and what torch does not name" if event.key == title else event.key
            spent.append(Spent(name, event.count / CALLS, total_us / CALLS / 1e3))
    return sorted(spent, key=lambda one: -one.ms)
