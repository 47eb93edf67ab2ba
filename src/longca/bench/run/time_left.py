"""The time that a run still needs: the estimates of the cells that are left, corrected by what the cells before them really took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from longca.bench.plan.cell import Cell
from longca.results.record import NEVER_RAN, Record

# measuring that is taken to have gone as estimated: the first cells, which compile and import, do not change the estimate of all
TRUST_S = 2.0
TRUST = 0.05  # of the whole run


class TimeLeft:
    """Cells are weighed by their estimates, not counted: the last length of a suite may take longer than all others together.

    A kernel that did not run a mask at one length is expected not to run it at the others, until it does.
    """

    def __init__(self, estimates: Mapping[str, float], cells: Mapping[str, Cell], now: Callable[[], float] = time.monotonic) -> None:
        """Seconds of each cell by its key, and the cell."""
        self._estimates, self._now = dict(estimates), now
        self._lines = {key: cell.with_problem(seqlen=1, seed=0, documents=None) for key, cell in cells.items()}
        self._seeds: defaultdict[Cell, set[int]] = defaultdict(set)
        for key, cell in cells.items():
            self._seeds[self._lines[key]].add(cell.problem.seed)
        self._left: defaultdict[Cell, float] = defaultdict(float)  # seconds as estimated, of the same work at all lengths
        for key, estimate in self._estimates.items():
            self._left[self._lines[key]] += estimate
        self._idle = set[Cell]()  # what did not run when it was last tried
        self._estimated = self._measured = max(TRUST_S, TRUST * sum(self._estimates.values()))
        self._last = now()

    def finished(self, record: Record) -> None:
        estimate, now, line = self._estimates.pop(record.key), self._now(), self._lines[record.key]
        self._left[line] -= estimate
        if record.status not in NEVER_RAN:
            self._estimated += estimate
            self._measured += now - self._last
            self._idle.discard(line)
        else:
            self._idle.add(line)
        self._last = now

    def has_several_seeds(self, record: Record) -> bool:
        """Whether the run has the same work with other seeds, which only their numbers tell apart."""
        return len(self._seeds[self._lines[record.key]]) > 1

    @property
    def seconds(self) -> float:
        """The seconds left at this moment."""
        running = sum(left for line, left in self._left.items() if line not in self._idle)
        left = running * self._measured / self._estimated
        return max(0.0, left - (self._now() - self._last)) if self._estimates else 0.0
