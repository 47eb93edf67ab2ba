"""Speed over ranks: with the same tokens in all, and with the same tokens on each rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from longca.report.figures.lines import RANKS
from longca.report.figures.sheet import Drawing
from longca.report.figures.speed import charts, speed_measure
from longca.results.naming import Row
from longca.results.points import grouped
from longca.text import format_size


def over_ranks(drawing: Drawing) -> Any:
    """Up to two panels for each mask: the longest of the lengths, and of the lengths per rank, that most numbers of ranks have."""
    panels: dict[str, list[Row]] = {}
    for family, group in grouped([row for row in drawing.rows if row.record.method], lambda row: row.family).items():
        for size, words in ((_in_all, "tokens"), (_on_each, "tokens per rank")):
            chosen = _most_ranks(group, size)
            if chosen:
                panels[f"{family}, {format_size(round(size(chosen[0])))} {words}"] = chosen
    speed = speed_measure(drawing)
    return charts(drawing, panels, RANKS, speed._replace(label=f"{speed.label} per rank"))


def _in_all(row: Row) -> float:
    return row.record.problem.seqlen


def _on_each(row: Row) -> float:
    return row.record.problem.seqlen / row.record.problem.ranks


def _most_ranks(rows: Sequence[Row], size: Callable[[Row], float]) -> list[Row]:
    ranks = {tokens: len({row.record.problem.ranks for row in group}) for tokens, group in grouped(rows, size).items()}
    best = max(ranks, key=lambda tokens: (ranks[tokens], tokens))
    return [row for row in rows if size(row) == best] if ranks[best] > 1 else []
