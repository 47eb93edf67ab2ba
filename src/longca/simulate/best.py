"""The best method and grid for each question, and what makes it so."""

from __future__ import annotations

from collections.abc import Sequence

from longca.bench.plan.cell import Cell
from longca.results.problem import Problem
from longca.results.tables import format_figure
from longca.simulate.predict import Prediction
from longca.simulate.run import Simulated
from longca.text import format_size

LITTLE = 0.02  # of the time: no reason
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


def title(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens on {cell.problem.ranks} GPUs, {cell.problem.pass_.value}"


def name(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.split.method} {cell.split.shape}"


def explain(group: Sequence[Simulated]) -> str:
    """Returns sentences: the best, and what makes the next method, and other grids of the best one, slower."""
    best = group[0]
    assert best.prediction is not None
    assert best.cell.split is not None
    figures = f"{format_figure(best.prediction.tflops)} TFLOP/s per GPU, {best.prediction.ms:.3g} ms"
    sentences = [f"{title(best.cell)}: use {name(best.cell)}, {figures}."]
    method = best.cell.split.method
    others = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method != method]
    same = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method == method]
    for rival in others[:1] + same[:1]:
        assert rival.prediction is not None
        slower = rival.prediction.ms / best.prediction.ms - 1
        if slower < AS_LONG:
            sentences.append(f"{name(rival.cell)} takes as long.")
        else:
            sentences.append(f"{name(rival.cell)} takes {slower:.0%} longer: {_difference(best.prediction, rival.prediction)}.")
    return " ".join(sentences)


def _difference(best: Prediction, rival: Prediction) -> str:
    """Returns what the rival spends more and less time on, as shares of the best one's time; they add up to the difference."""
    parts = {
        "attention and copies": (best.compute_share, rival.compute_share),
        "waiting for transfers": (best.exposed_share, rival.exposed_share),
        "waiting for slower ranks": (best.late_share, rival.late_share),
        "waiting for the host": (best.host_share, rival.host_share),
    }
    changes = {what: other * rival.ms / best.ms - own for what, (own, other) in parts.items()}
    shown = [f"{what} {share:+.0%}" for what, share in sorted(changes.items(), key=lambda item: -item[1]) if abs(share) > LITTLE]
    return ", ".join(shown) or "a little of everything"
