"""Rates at a window, or another parameter of a mask, that lies between two of which there are records.

The wider one may be a window over the whole sequence, where the mask is a plainer one: `causal`, `full`, or one with documents. Rates are
interpolated over the logarithm of the parameter, as they are over that of the length. Of block patterns only the ratio is interpolated:
kernels have tiles of their own for some sizes of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from longca.recommend.geometry import Geometry
from longca.recommend.matching import Near, sorted_out
from longca.recommend.nearest_error import Window
from longca.recommend.neighbours import SHAPE, Neighbours, neighbours, scalable
from longca.recommend.question import Question
from longca.recommend.same_mask import plainer
from longca.results.reading import Results

RATIO = "ratio"  # of the blocks of a pattern that are visible


@dataclass(frozen=True)
class Between:
    """The parameter that is asked for between that of the nearest records and that of others, at the other end."""

    name: str
    asked: float
    nearest: float
    end: float
    question: Question  # about the other end
    found: Neighbours  # there
    is_whole: bool  # whether the other end is the plainer mask, which contains all others

    def rate(self, rate: float, other: float) -> float:
        """The rate between that of the nearest records and that of the other end, on a straight line over logarithms."""
        part = math.log(self.asked / self.nearest) / math.log(self.end / self.nearest)
        return math.pow(rate, 1 - part) * math.pow(other, part)

    @property
    def window(self) -> Window | None:
        """The window between two measured ones, of which the wider one may be a plainer mask; None for a ratio."""
        if self.question.is_pattern:
            return None
        low, high = sorted((int(self.nearest), int(self.end)))
        return Window(self.name, Geometry(int(self.asked), low, high), self.question.mask if self.is_whole else "")

    def sentence(self, lacking: Iterable[str]) -> str:
        """What was interpolated; `lacking` are kernels without a record at the other end."""
        low, high = (f"{self.name}={value}" for value in sorted((self.nearest, self.end)))
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
        value = record.built.params.get(name)
        if not _is_interpolated(question, name, asked) or value is None or asked == value or min(asked, value) <= 0:
            continue
        same = [other for other in alike if not question.is_pattern or _but(name, other.built.params) == _but(name, record.built.params)]
        measured = {n for other in same if (n := other.built.params.get(name, 0)) > 0}
        ends = _ends(question, name, measured)
        low, high = max((n for n in ends if n < asked), default=None), min((n for n in ends if n > asked), default=None)
        if low is None or high is None or value not in (low, high):
            return None
        end = high if value == low else low
        other = replace(ends[end], device=found.used[0].environment.name)
        matching, others = sorted_out(other, results)
        there = neighbours(other, [*matching, *others])
        is_whole = other.mask != question.mask
        if there is None or (question.is_pattern and _but(name, there.records[0].built.params) != _but(name, record.built.params)):
            return None
        return Between(name, asked, value, end, other, there, is_whole)
    return None


def window_of(question: Question, found: Neighbours, candidates: Iterable[Near], other: Between | None) -> Window | None:
    """The first window, or other whole number, in which the nearest records differ from the question, among measured ones; None for a
    ratio."""
    if other is not None or question.is_pattern:
        return other.window if other else None
    record, shape = found.records[0], attrgetter(*SHAPE)
    alike = [one.record for one in scalable(question, candidates) if shape(one.record) == shape(record)]
    for name, asked in question.all_params.items():
        value = record.built.params.get(name)
        if isinstance(asked, int) and isinstance(value, int) and asked != value and min(asked, value) > 0:
            return Window(name, Geometry.of(asked, {int(n) for one in alike if (n := one.built.params.get(name, 0)) > 0}))
    return None


def _is_interpolated(question: Question, name: str, asked: Any) -> bool:
    return name == RATIO if question.is_pattern else isinstance(asked, int)


def _ends(question: Question, name: str, measured: Iterable[int | float]) -> dict[int | float, Question]:
    """The question by the value of a parameter: those of records, and that over the whole sequence."""
    ends = {n: replace(question, params={**question.params, name: n}) for n in measured}
    for whole in () if question.is_pattern else (question.seqlen - 1, question.seqlen):
        if plain := plainer(replace(question, params={**question.params, name: whole})):
            ends.setdefault(whole, plain)
            break
    return ends


def _but(name: str, params: Mapping[str, Any]) -> dict[str, Any]:
    return {other: value for other, value in params.items() if other != name}
