"""A timer for ranks that start together."""

from __future__ import annotations

import statistics
from collections.abc import Generator
from contextlib import closing

import torch

from longca.bench.clock.clock import Call, Sample, Timer, nothing
from longca.bench.clock.timers import CudaTimer
from longca.parallel.comm.base import Comm


class RanksTimer:
    """All ranks see the same figures, so they stop together: the slowest rank's time of each iteration, and the first rank's clock."""

    def __init__(self, comm: Comm, inner: Timer) -> None:
        self._comm, self._inner = comm, inner
        self._now = _gather(comm, [inner.now()])[0][0]

    def samples(self, call: Call, before: Call = nothing, load: Call | None = None) -> Generator[Sample, None, None]:
        with closing(self._inner.samples(call, before, load)) as samples:
            for sample in samples:
                settings = (self._inner.spin_ms, float(self._inner.loads)) if isinstance(self._inner, CudaTimer) else (0.0, 0.0)
                rows = _gather(self._comm, [self._inner.now(), sample.ms, float(sample.late), sample.call_ms, *settings])
                self._now = rows[0][0]
                _, slowest_ms, any_late, longest_call_ms, longest_spin_ms, most_loads = map(max, zip(*rows, strict=True))
                if isinstance(self._inner, CudaTimer):
                    self._inner.spin_ms, self._inner.loads = longest_spin_ms, int(most_loads)
                yield Sample(slowest_ms, bool(any_late), longest_call_ms, statistics.fmean(row[1] for row in rows))

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
