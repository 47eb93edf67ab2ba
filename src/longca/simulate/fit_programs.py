"""Fits compute constants to the times that methods take without transfers: what a rank computes, from its recorded program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from longca.parallel.comm.trace import Event
from longca.results.reading import Results
from longca.results.record import Record
from longca.simulate.against import measured, recorded
from longca.simulate.cluster import Compute
from longca.simulate.costs import attention_s, memory_s
from longca.simulate.fit import Fit, costs_of, error_of, rounded

SPEEDS, LAUNCH = ("forward_tflops", "backward_tflops", "memory_gb_s"), "launch_us"
ENDLESS = 1e12  # a speed at which nothing takes time


def fit_programs(results: Results, compute: Compute, fewest: int) -> tuple[Compute, list[Fit]]:
    """Returns the constants and those that are new; none where there are fewer records. Seconds are a sum of work over speeds and of
    operations' launches: least squares over the slowest rank of each record. A constant that would be negative keeps its value."""
    timed = [record for record in measured(results) if record.over_ranks and record.over_ranks.wait_share is not None]
    rows = [(_alone_s(record), _work(programs.events(record.problem.pass_), compute)) for record, programs in recorded(results, timed)]
    if len(rows) < fewest:
        return compute, []
    seconds, work = np.array([own for own, _ in rows]), np.array([parts for _, parts in rows])
    matrix, names = work / seconds[:, None], [*SPEEDS, LAUNCH]
    while min(costs := costs_of(matrix)) <= 0:
        least = int(costs.argmin())
        matrix = np.delete(matrix, least, 1)
        del names[least]
    values = {name: rounded(1 / cost if name in SPEEDS else cost) for name, cost in zip(names, costs, strict=True)}
    error = error_of(matrix, costs)
    return replace(compute, **values), [Fit(f"compute.{name}", value, len(rows), error) for name, value in values.items()]


def _alone_s(record: Record) -> float:
    """What the slowest rank took when nothing was sent."""
    assert record.over_ranks is not None
    return record.times.median * 1e-3 * (1 - (record.over_ranks.wait_share or 0.0))


def _work(ranks: Sequence[Sequence[Event]], compute: Compute) -> list[float]:
    """Of the slowest rank, the seconds of its program if one speed were 1 and the others endless, and of its launches at 1 us each."""
    slowest = max(ranks, key=lambda events: _seconds(events, compute))
    endless = replace(compute, launch_us=0.0, **dict.fromkeys(SPEEDS, ENDLESS))
    return [_seconds(slowest, replace(endless, **{name: 1.0})) for name in (*SPEEDS, LAUNCH)]


def _seconds(events: Sequence[Event], compute: Compute) -> float:
    attention = sum(attention_s(event.call, compute) for event in events if event.call is not None)
    return attention + sum(memory_s(event.bytes, event.calls, compute) for event in events if event.kind == "memory")
