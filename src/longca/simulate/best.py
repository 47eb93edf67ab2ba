"""The best method and grid for each question."""

from __future__ import annotations

from collections.abc import Sequence

from longca.results.problem import Problem
from longca.simulate.run import Simulated

AS_LONG = 1e-3  # of the time: no difference


def contests(results: Sequence[Simulated]) -> list[list[Simulated]]:
    """The results of each number of GPUs, mask, length, shape and pass, fastest first; only those that have a time.

    Of results that take as long as the fastest, the one that needs the least memory is first.
    """
    together: dict[Problem, list[Simulated]] = {}
    for result in results:
        if result.prediction is not None and result.cell.split is not None:
            together.setdefault(result.cell.problem, []).append(result)
    return [_ordered(group) for group in together.values()]


def _ordered(group: Sequence[Simulated]) -> list[Simulated]:
    fastest = min(map(_ms, group))
    equal = [result for result in group if _ms(result) / fastest - 1 < AS_LONG]
    slower = [result for result in group if _ms(result) / fastest - 1 >= AS_LONG]
    return sorted(equal, key=_peak) + sorted(slower, key=_ms)


def _ms(result: Simulated) -> float:
    assert result.prediction is not None
    return result.prediction.ms


def _peak(result: Simulated) -> int:
    assert result.prediction is not None
    return max(result.prediction.peaks)
