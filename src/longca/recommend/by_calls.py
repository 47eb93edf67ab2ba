"""Which kernel, or pair of kernels, is the best by the number of calls that share a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MOST = 4096  # calls that share a plan, at the most


class Leader(NamedTuple):
    """The best with so many calls per plan, its time with its part of the planning, and all that are as fast."""

    name: str
    ms: float
    equals: frozenset[str]


class Step(NamedTuple):
    """The best from so many calls per plan on."""

    calls: int
    name: str
    ms: float


def steps_of(best_at: Callable[[int], Leader | None]) -> tuple[Step, ...]:
    """The best from one call per plan on. The next step begins where it is no longer as fast as the best."""
    best = best_at(1)
    if best is None:
        return ()
    steps, low = [Step(1, best.name, best.ms)], 1
    while low < MOST:
        high = min(2 * low, MOST)
        if not _holds(best_at, steps[-1], high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _holds(best_at, steps[-1], middle) else (low, middle)
            if next_best := best_at(high):
                steps.append(Step(high, next_best.name, next_best.ms))
        low = high
    return tuple(steps)


def _holds(best_at: Callable[[int], Leader | None], step: Step, calls: int) -> bool:
    best = best_at(calls)
    return best is None or step.name in best.equals
