"""Rates at a window, or another parameter of a mask, that lies between two of which there are records.

The wider one may be a window over the whole sequence, where the mask is a plainer one: `causal`, `full`, or one with documents. Rates are
interpolated over the logarithm of the parameter, as they are over that of the length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter

from longca.recommend.geometry import Geometry
from longca.recommend.matching import Near, sorted_out
from longca.recommend.neighbours import SHAPE, Neighbours, neighbours, scalable
from longca.recommend.question import Question
from longca.recommend.same_mask import plainer
from longca.results.reading import Results


@dataclass(frozen=True)
class Between:
    """The parameter that is asked for between that of the nearest records and that of others, at the other end."""

    name: str
    nearest: int
    geometry: Geometry  # of the parameter
    question: Question  # about the other end
    found: Neighbours  # there
    is_whole: bool  # whether the other end is the plainer mask, which contains all others

    def rate(self, rate: float, other: float) -> float:
        """The rate between that of the nearest records and that of the other end."""
        end = self.geometry.above if self.nearest == self.geometry.below else self.geometry.below
        return self.geometry.interpolate({self.nearest: rate, end: other})

    def sentence(self, lacking: Iterable[str]) -> str:
        """What was interpolated; `lacking` are kernels without a record at the other end."""
        low, high = (f"{self.name}={value}" for value in (self.geometry.below, self.geometry.above))
        other = f"{self.question.mask}, which {high} equals" if self.is_whole else high
        names = sorted(lacking)
        alone = f"; {', '.join(names)} without a record of {self.question.mask}: as at {self.name}={self.nearest}" if names else ""
        return f"speeds are interpolated over the logarithm of {self.name} between {low} and {other}{alone}"


def between(question: Question, found: Neighbours, candidates: Iterable[Near], results: Results) -> Between | None:
    """The interpolation for the first parameter in which the nearest records differ from the question; None where there is none, or the
    parameter lies beyond all records."""
    record, shape = found.records[0], attrgetter(*SHAPE)
    alike = [one.record for one in scalable(question, candidates) if shape(one.record) == shape(record)]
    for name, asked in question.all_params.items():
        value = record.params.get(name)
        if question.is_pattern or not (isinstance(asked, int) and isinstance(value, int)) or asked == value or min(asked, value) <= 0:
            continue
        measured = {n for other in alike if isinstance(n := other.params.get(name), int) and n > 0}
        ends = {n: replace(question, params={**question.params, name: n}) for n in measured}
        for whole in (question.seqlen - 1, question.seqlen):
            if plain := plainer(replace(question, params={**question.params, name: whole})):
                ends.setdefault(whole, plain)
                break
        around = Geometry.of(asked, ends)
        if not around.is_between or value not in around.lengths:
            return None
        end = around.above if value == around.below else around.below
        other = replace(ends[end], device=found.used[0].environment.name)
        matching, others = sorted_out(other, results)
        there = neighbours(other, [*matching, *others])
        return Between(name, value, around, other, there, other.mask != question.mask) if there else None
    return None
