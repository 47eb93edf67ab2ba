"""Kernels that no record shows for what is asked, and that are faster than the best one at another length."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from longca.recommend.geometry import FARTHEST
from longca.recommend.matching import Near
from longca.recommend.question import Question
from longca.results.naming import rows
from longca.results.points import grouped
from longca.results.ranking import PRACTICAL, entries, rank
from longca.results.reading import Results
from longca.text import format_size


@dataclass(frozen=True)
class FasterElsewhere:
    """At a length near the one that is asked for, the speeds of kernels over that of the best one here."""

    seqlen: int
    best: str
    ratios: Mapping[str, float]

    def sentence(self) -> str:
        names, speeds = ", ".join(self.ratios), ", ".join(f"{ratio:.2f}" for ratio in self.ratios.values())
        have, are = ("have", "they are") if len(self.ratios) > 1 else ("has", "it is")
        return (
            f"{names} {have} no record of this length; at {format_size(self.seqlen)} tokens "
            f"{are} faster than {self.best} ({speeds} times its speed)."
        )

    def to_json(self) -> dict[str, Any]:
        return {"seqlen": self.seqlen, "ratios": dict(self.ratios)}


def faster_elsewhere(
    question: Question, best: str, measured: Collection[str], others: Iterable[Near], results: Results, device: str
) -> FasterElsewhere | None:
    """What is faster at the nearest length of which there is a record of the best kernel; None where nothing is. `measured` are the
    kernels of which there are records of what is asked."""
    near = [one.record for one in others if [*one.differences] == ["--seqlen"] and one.environment.name == device]
    by_length = grouped(near, lambda record: record.seqlen)
    for seqlen in sorted(by_length, key=lambda length: abs(math.log(length / question.seqlen))):
        if max(seqlen / question.seqlen, question.seqlen / seqlen) > FARTHEST:
            return None
        ranking = rank(entries(rows(replace(results, records=by_length[seqlen])), question.pass_))
        known = ranking.of(best)
        if known is None:
            continue
        lacking = [one for one in ranking.standings if one.line not in measured]
        ratios = {one.line: ratio for one in lacking if (ratio := one.against_best / known.against_best) > 1 + PRACTICAL}
        return FasterElsewhere(seqlen, best, ratios) if ratios else None
    return None
