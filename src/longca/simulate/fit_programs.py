"""Fits compute constants to the times that methods take without transfers: what a rank computes, from its recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from longca.parallel.comm.trace import Event
from longca.results.reading import Results
from longca.results.record import Record
from longca.simulate.against import measured, recorded
from longca.simulate.cluster import Compute
from longca.simulate.costs import attention_s, memory_s

SPEEDS, LAUNCH = ("forward_tflops", "backward_tflops", "memory_gb_s"), "launch_us"
ENDLESS = 1e12  # a speed at which nothing takes time


class Fitted(NamedTuple):
    """The constants, how many records they come from, and the median error of the times without transfers."""

    compute: Compute
    measurements: int
    error: float


def fit_programs(results: Results, compute: Compute, fewest: int) -> Fitted | None:
    """None for fewer records than this. Seconds are a sum of work over speeds and of operations' launches: least squares of relative
    errors over the slowest rank of each record. A constant that would be negative keeps its value."""
    timed = [record for record in measured(results) if record.over_ranks and record.over_ranks.wait_share is not None]
    rows = [(_alone_s(record), _work(programs.events(record.problem.pass_), compute)) for record, programs in recorded(results, timed)]
    if len(rows) < fewest:
        return None
    seconds, work = np.array([own for own, _ in rows]), np.array([parts for _, parts in rows])
    matrix, columns = work / seconds[:, None], list(range(work.shape[1]))
    while True:
        solution, *_ = np.linalg.lstsq(matrix[:, columns], np.ones(len(seconds)), rcond=None)
        if (solution > 0).all():
            break
        del columns[int(solution.argmin())]
    error = float(median(np.abs(matrix[:, columns] @ solution - 1).tolist()))
    names = [*SPEEDS, LAUNCH]
    values = {names[column]: 1 / cost if names[column] in SPEEDS else cost for column, cost in zip(columns, solution, strict=True)}
    return Fitted(replace(compute, **{name: float(f"{value:.4g}") for name, value in values.items()}), len(rows), error)


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
