"""The best method and grid for each question, and what makes it so."""

from __future__ import annotations

from collections.abc import Sequence

from longca.bench.plan.cell import Cell
from longca.simulate.predict import Prediction
from longca.simulate.run import Simulated
from longca.text import format_size

LITTLE = 0.02  # of the time: no reason


def contests(results: Sequence[Simulated]) -> list[list[Simulated]]:
    """The results of each number of GPUs, mask, length, shape and pass, fastest first; only those that have a time."""
    together: dict[tuple[object, ...], list[Simulated]] = {}
    for result in results:
        if result.prediction is not None and result.cell.split is not None:
            key = (result.cell.problem, result.cell.pass_, result.cell.split.ranks)
            together.setdefault(key, []).append(result)
    return [sorted(group, key=_ms) for group in together.values()]


def _ms(result: Simulated) -> float:
    assert result.prediction is not None
    return result.prediction.ms


def title(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.mask_title}, {format_size(cell.seqlen)} tokens on {cell.split.ranks} GPUs, {cell.pass_.value}"


def name(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.split.method} {cell.split.shape}"


def explain(group: Sequence[Simulated]) -> str:
    """Returns sentences: the best, and what makes the next method, and other grids of the best one, slower."""
    best = group[0]
    assert best.prediction is not None
    assert best.cell.split is not None
    sentences = [f"{title(best.cell)}: use {name(best.cell)}, {best.prediction.tflops:.0f} TFLOP/s per GPU, {best.prediction.ms:.3g} ms."]
    method = best.cell.split.method
    others = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method != method]
    same = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method == method]
    for rival in others[:1] + same[:1]:
        assert rival.prediction is not None
        slower = rival.prediction.ms / best.prediction.ms - 1
        if slower < 1e-3:
            sentences.append(f"{name(rival.cell)} takes as long.")
        else:
            sentences.append(f"{name(rival.cell)} takes {slower:.0%} longer: {_difference(best.prediction, rival.prediction)}.")
    return " ".join(sentences)


def _difference(best: Prediction, rival: Prediction) -> str:
    """Returns what the rival spends more time on, as shares of the best one's time."""
    parts = {
        "attention and copies": (best.compute_share, rival.compute_share),
        "transfers that nothing hides": (best.exposed_share, rival.exposed_share),
        "waiting for slower ranks": (best.late_share, rival.late_share),
        "the host": (best.host_share, rival.host_share),
    }
    more = {what: other * rival.ms / best.ms - own for what, (own, other) in parts.items()}
    shown = [
        f"{share:.0%} of the time more for {what}" for what, share in sorted(more.items(), key=lambda item: -item[1]) if share > LITTLE
    ]
    return " and ".join(shown[:2]) or "a little of everything"
