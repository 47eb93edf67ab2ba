"""Speed over ranks: with the same tokens in all, and with the same tokens on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import RANKS
from longca.report.figures.sheet import Drawing
from longca.report.figures.speed import SPEED, charts
from longca.report.measures import grouped
from longca.report.reading import Record
from longca.text import format_size


def over_ranks(drawing: Drawing) -> Any:
    """Up to two panels for each mask: the longest of the lengths, and of the lengths per rank, that most numbers of ranks have."""
    own: list[Record] = []
    for family, group in grouped([record for record in drawing.records if record.get("ranks")], "family").items():
        sizes = [record | {"in_all": record["seqlen"], "each": record["seqlen"] / record["ranks"]} for record in group]
        for field, words in (("in_all", "tokens"), ("each", "tokens per rank")):
            chosen = _most_ranks(sizes, field)
            if chosen:
                name = f"{family}, {format_size(round(chosen[0][field]))} {words}"
                own += [record | {"panel": name} for record in chosen]
    return charts(drawing, own, RANKS, SPEED._replace(label="TFLOP/s per rank"))


def _most_ranks(records: Sequence[Record], field: str) -> list[Record]:
    groups = grouped(records, field)
    best = max(groups, key=lambda size: (len(grouped(groups[size], "ranks")), size))
    return groups[best] if len(grouped(groups[best], "ranks")) > 1 else []
