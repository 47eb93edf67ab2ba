"""A timer for ranks that start together."""

from __future__ import annotations

import statistics
from collections.abc import Generator
from contextlib import closing

import torch

from longca.bench.clock.clock import Call, Sample, Timer, nothing
from longca.parallel.comm.base import Comm


class RanksTimer:
    """All ranks see the same figures, so they stop together: of each iteration the time of the slowest rank and the clock of its device,
    and the first rank's seconds."""

    def __init__(self, comm: Comm, inner: Timer) -> None:
        self._comm, self._inner = comm, inner
        self._now = _gather(comm, [inner.now()])[0][0]

    def samples(self, call: Call, before: Call = nothing) -> Generator[Sample, None, None]:
        with closing(self._inner.samples(call, before)) as samples:
            for sample in samples:
                rows = _gather(self._comm, [self._inner.now(), sample.ms, float(sample.late), sample.call_ms, sample.mhz or 0.0])
                self._now = rows[0][0]
                slowest = max(rows, key=lambda row: row[1])
                _, slowest_ms, any_late, longest_call_ms, _ = map(max, zip(*rows, strict=True))
                mean_ms = statistics.fmean(row[1] for row in rows)
                yield Sample(slowest_ms, bool(any_late), longest_call_ms, mean_ms, slowest[4] or None)

    def now(self) -> float:
        return self._now


def all_agree(comm: Comm, mine: bool) -> bool:
    """Whether all ranks say yes."""
    return all(row[0] for row in _gather(comm, [float(mine)]))


def _gather(comm: Comm, numbers: list[float]) -> list[list[float]]:
    """The numbers of every rank."""
    mine = torch.tensor(numbers, dtype=torch.float64, device=comm.device)
    rows = [torch.empty_like(mine) for _ in range(comm.size)]
    comm.all_gather([mine], [[row] for row in rows]).wait()
    return [row.tolist() for row in rows]
