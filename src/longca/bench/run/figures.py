"""From samples to an outcome: times, speed, share of peak. A speed that the device cannot reach is invalid and gets no time."""

from __future__ import annotations

import os
from typing import Any

from longca.bench.clock.clock import Timing
from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.results import metrics
from longca.results.problem import Pass
from longca.results.record import Energy, Outcome, Status, Times


def timed_outcome(
    timing: Timing,
    mask: AnyMask,
    case: Case,
    pass_: Pass,
    device_model: str,
    ranks: int = 1,
    nondeterministic: bool | None = None,
    joules: float | None = None,
    **fields: Any,
) -> Outcome:
    """The outcome of a timed pass, per device of those that share the work; `fields` are what else is known of it."""
    speed = metrics.tflops(metrics.flops(mask, case, pass_) / ranks, timing.median)
    limit = peak = metrics.peak(device_model, case.dtype)
    if peak is None and case.device == "cpu":
        limit = metrics.cpu_bound(len(os.sched_getaffinity(0)), case.dtype, metrics.cpu_flags())
    impossible = metrics.too_fast(speed, limit, device_model, case.dtype)
    if impossible:
        return Outcome(status=Status.INVALID, reason=impossible, **fields)
    times = Times(
        median=timing.median,
        p20=timing.percentile(20),
        p80=timing.percentile(80),
        samples=list(timing.samples),
        tflops=speed,
        spread=timing.spread,
        stop=timing.stop,
        noisy=timing.stop != "target",
        mfu=None if peak is None else speed / peak,
        call_ms=timing.call_ms,
        host_bound=timing.host_bound,
        nondeterministic=nondeterministic,
        clock_mhz=timing.clock_mhz,
    )
    energy = None if timing.watts is None and joules is None else Energy(timing.watts, joules)
    return Outcome(status=Status.OK, timed=times, energy=energy, **fields)
