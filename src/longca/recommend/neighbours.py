"""Which records a nearest answer is scaled from: those of the nearest shape, and those of a shape that tells how its rates go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter

from longca.recommend.geometry import FARTHEST, Geometry
from longca.recommend.matching import Near, of_device, refuse_several_devices
from longca.recommend.nearest_error import VARYING
from longca.recommend.question import Question
from longca.recommend.trend import Rates, Trend
from longca.results.points import grouped
from longca.results.record import Record
from longca.results.tile_work import TileWork
from longca.text import format_shape

SHAPE = ("heads_q", "heads_kv", "head_dim", "head_dim_v")
WINDOW = 4  # on an H200, twice the window makes kernels 6 to 80 % faster; other heads of 128 change their speed by a few percent


@dataclass(frozen=True)
class Neighbours:
    """Records of the nearest shape around a length, and those of the shape that guides them beyond their own lengths."""

    geometry: Geometry
    used: tuple[Near, ...]
    guide: tuple[Near, ...]
    guide_geometry: Geometry

    @property
    def records(self) -> tuple[Record, ...]:
        return tuple(one.record for one in self.used)

    @property
    def all_records(self) -> tuple[Record, ...]:
        """Also those of the guide."""
        return *self.records, *(one.record for one in self.guide)

    def rates(self, work: TileWork) -> Rates:
        if not self.guide:
            return Rates(self.geometry, work)
        return Rates(self.geometry, work, Trend(self.guide_geometry, self.geometry.nearest, [one.record for one in self.guide], work))

    def guided(self) -> list[str]:
        """A sentence on the guide, where there is one."""
        if not self.guide:
            return []
        params = self.guide[0].differences.get("--set")
        return [f"speeds change with the length as those of {shape_of(self.guide[0].record)}{f', {params}' if params else ''} do"]


def shape_of(record: Record) -> str:
    return format_shape({name: getattr(record, name) for name in SHAPE})


def neighbours(question: Question, candidates: Iterable[Near]) -> Neighbours | None:
    """The records to scale; None where none is near enough.

    The nearest shape is taken whatever its lengths are, where another shape leads on from them: to change over to that shape's own rates
    would make times jump, and a longer call might seem faster.
    """
    near = of_device(question, scalable(question, candidates))
    refuse_several_devices(near, "come near this")
    groups = sorted(_by_shape(near).values(), key=partial(distance, question))
    for group in groups:
        guide, geometry = _guide(question, group, groups), _geometry(question, group)
        if guide or geometry.nearest_ratio <= FARTHEST:
            used = tuple(one for one in group if one.record.problem.seqlen in geometry.read)
            return Neighbours(geometry, used, tuple(guide), _geometry(question, guide))
    return None


def scalable(question: Question, candidates: Iterable[Near]) -> list[Near]:
    """The records of one device that differ from the question in nothing but what times are scaled over."""
    scaled = [one for one in candidates if one.differences.keys() <= set(VARYING) and not one.record.method]
    return [one for one in scaled if not _is_other_problem(question, one)]


def _guide(question: Question, own: Sequence[Near], groups: Sequence[list[Near]]) -> list[Near]:
    """The records of the shape nearest to this one that was measured at its last length and near the length that is asked for."""
    geometry = _geometry(question, own)
    if geometry.is_between:
        return []
    (last,) = geometry.lengths
    leading = []
    for group in groups:
        around = _geometry(question, group)
        is_there = around.nearest_ratio <= FARTHEST and around.lengths != geometry.lengths
        if group is not own and is_there and any(one.record.problem.seqlen == last for one in group):
            leading.append(group)
    return min(leading, key=partial(distance, _in_shape(question, own[0].record)), default=[])


def _in_shape(question: Question, record: Record) -> Question:
    """The question with the heads, head sizes and parameters of a record."""
    numbers = [name for name, value in question.all_params.items() if isinstance(value, int | float)]
    params = {name: record.built.params[name] for name in numbers if name in record.built.params}
    return replace(question, **{name: getattr(record, name) for name in SHAPE}, params=params)


def _is_other_problem(question: Question, near: Near) -> bool:
    """Whether a block pattern has another number of patterns than one per KV head, or than asked for: no scaling accounts for that."""
    asked = question.params.get("heads", near.record.problem.heads_kv)
    return question.is_pattern and near.record.built.params.get("heads", asked) != asked


def _by_shape(near: Sequence[Near]) -> dict[tuple[object, ...], list[Near]]:
    """Records by everything but their length."""
    shape = attrgetter(*(f"record.{name}" for name in SHAPE))
    return grouped(near, lambda one: (*shape(one), one.differences.get("--set")))


def _geometry(question: Question, group: Iterable[Near]) -> Geometry:
    return Geometry.of(question.seqlen, {one.record.problem.seqlen for one in group})


def distance(question: Question, group: Sequence[Near]) -> tuple[bool, float, int]:
    """How far a shape is from the question: whether its head sizes are others, then factors of two, added up, those of windows `WINDOW`
    times. Of shapes that are equally far away, the one with the most lengths is nearer. The length that is asked for has no part in it, so
    that one shape answers at all lengths."""
    record, wanted = group[0].record, question.all_params
    sizes = [record.problem.head_dim / question.head_dim, record.problem.head_dim_v / question.head_dim_v]
    factors = [
        *sizes,
        record.problem.heads_q / question.heads_q,
        question.heads_kv / record.problem.heads_kv * record.problem.heads_q / question.heads_q,
    ]
    for name, value in record.built.params.items():
        asked = wanted.get(name)
        if isinstance(asked, int | float) and asked > 0 and value > 0:
            factors += [value / asked] * (1 if question.is_pattern else WINDOW)
    doublings = sum(abs(math.log2(factor)) for factor in factors)
    return (
        sizes != [1, 1],
        round(doublings, 6),
        -len({one.record.problem.seqlen for one in group}),
    )  # rounded: equal sums differ in the last digit
