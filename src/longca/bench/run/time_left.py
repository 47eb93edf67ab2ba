"""The time that a run still needs: the estimates of the cells that are left, corrected by what the cells before them really took."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from longca.results.record import NEVER_RAN, Record, Status

TRUST_S = 2.0  # so many seconds of measuring as estimated are taken for granted: one cell alone does not change the estimate of all


class TimeLeft:
    """Cells are weighed by their estimates, not counted: the last length of a suite may take longer than all others together."""

    def __init__(
        self, estimates: Mapping[str, float], kernels: Mapping[str, str] | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        """Seconds of each cell by its key, and its kernel: a kernel that is not available is so in all of its cells."""
        self._left, self._kernels, self._now = dict(estimates), dict(kernels or {}), now
        self._estimated = self._measured = TRUST_S
        self._last = now()

    def finished(self, record: Record) -> None:
        estimate, now = self._left.pop(record.key, 0.0), self._now()
        if record.status not in NEVER_RAN:
            self._estimated += estimate
            self._measured += now - self._last
        elif record.status is Status.UNAVAILABLE:
            for key in [key for key in self._left if self._kernels.get(key) == record.asked]:
                self._left[key] = 0.0
        self._last = now

    @property
    def seconds(self) -> float:
        """The seconds left at this moment."""
        left = sum(self._left.values()) * self._measured / self._estimated
        return max(0.0, left - (self._now() - self._last)) if self._left else 0.0
