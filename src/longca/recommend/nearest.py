"""The nearest answer where no record answers exactly: times of the nearest measured lengths and shape, scaled by work.

A kernel's time at another length is the work there (whole tiles that the mask touches) over its rate, which is interpolated between
the nearest shorter and the nearest longer length, or that of the nearest length where there is none on the other side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from longca import masks
from longca.errors import BadInput
from longca.masks import AnyMask
from longca.recommend.advice import Near
from longca.recommend.geometry import FARTHEST, Geometry
from longca.recommend.nearest_error import COVERED, VARYING, Errors
from longca.recommend.question import Question
from longca.recommend.trend import Trend
from longca.recommend.unmeasured import case_of, refusal
from longca.results.metrics import flops, tflops
from longca.results.naming import Row, rows
from longca.results.points import grouped
from longca.results.ranking import NOT_MEASURED, Entry, Figure, Out, entries
from longca.results.reading import Results
from longca.results.record import Environment, Pass, Record, Status
from longca.results.tile_work import TileWork
from longca.text import format_shape, format_size

DENSER = 1.5  # times as many visible pairs
LONGEST_PATTERN = 1 << 17  # tokens of a block pattern: a longer one takes too long to build


@dataclass(frozen=True)
class Nearest:
    """Predicted entries, what they were scaled from, and how far off such predictions are."""

    entries: tuple[Entry, ...]
    parts: tuple[tuple[Entry, ...], ...]  # where forward and backward are asked for together: those of each
    mask: AnyMask  # that is asked for, of one seed
    records: tuple[Record, ...]  # all records at the lengths and the shape that were scaled
    environments: tuple[Environment, ...]
    lengths: tuple[int, ...]
    differences: tuple[str, ...]  # sentences: what was asked for, and what was measured instead
    unknown: tuple[str, ...]  # flags whose change no records tell, so that there is no range

    def to_json(self) -> dict[str, object]:
        about = {"lengths": list(self.lengths), "differences": list(self.differences)}
        return about | {"range_covers": COVERED, "unknown": list(self.unknown)}


def nearest(question: Question, others: Iterable[Near], results: Results) -> Nearest | None:
    """The prediction from the nearest records; None where none is near enough, no kernel ran there, or the mask cannot be built."""
    scaled = [one for one in others if one.differences.keys() <= set(VARYING) and not one.record.method]
    near = [one for one in scaled if not _is_other_problem(question, one)]
    if not near or not _can_build(question):
        return None
    devices = sorted({one.environment.name for one in near})
    if len(devices) > 1:
        raise BadInput(f"records of several devices come near this ({', '.join(devices)}); choose one with --device.")
    every = list(_by_shape(near).values())
    groups = [group for group in every if _geometry(question, group).nearest_ratio <= FARTHEST]
    if not groups:
        return None
    group, guide = _with_guide(question, every, groups)
    geometry = _geometry(question, group)
    used = [one for one in group if one.record.seqlen in geometry.read]
    records = tuple(one.record for one in used)
    flags = {flag for one in used for flag in one.differences} - {"--seqlen"}
    errors = Errors(results, question.mask, geometry, flags)
    work = TileWork(results.masks, (*records, *(one.record for one in guide)))
    trend = Trend(_geometry(question, guide), geometry.lengths[0], [one.record for one in guide], work) if guide else None
    predicted = _Prediction(question, geometry, work, errors, trend)
    named = rows(replace(results, records=list(records)))
    environments = tuple(one.environment for one in used)
    device = "cpu" if all(environment.on_cpu for environment in environments) else "cuda"
    made = _entries(predicted, named, device)
    if all(entry.out for entry in made):
        return None
    parts = [
        _entries(predicted.of_part(part), named, device, question.pass_) for part in question.pass_.parts if len(question.pass_.parts) > 1
    ]
    mask = predicted.mask(records[0].seed)
    differences = *_differences(question, used, geometry), *_guided(guide), *_densities(predicted, used)
    return Nearest(made, tuple(parts), mask, records, environments, geometry.lengths, differences, errors.unknown)


def _with_guide(question: Question, every: Sequence[list[Near]], near: Sequence[list[Near]]) -> tuple[list[Near], list[Near]]:
    """The records to scale, and those of another shape whose rates tell how the first ones' go on at the length that is asked for.

    The very shape is scaled at any distance where another shape leads on from it: to change over to that shape's own rates would make
    times jump, and a longer call might seem faster.
    """
    chosen = min(near, key=lambda group: _distance(question, group))
    own = next((group for group in every if not group[0].differences.keys() - {"--seqlen"}), None)
    geometry = _geometry(question, own) if own else None
    if own is None or geometry is None or geometry.is_between:
        return chosen, []
    (last,) = geometry.lengths
    others = [group for group in near if group is not own and any(one.record.seqlen == last for one in group)]
    guides = [group for group in others if _geometry(question, group).lengths != geometry.lengths]
    guide = min(guides, key=lambda group: _distance(question, group), default=[])
    return (own, guide) if guide else (chosen, [])


def _guided(guide: Sequence[Near]) -> list[str]:
    if not guide:
        return []
    record, params = guide[0].record, guide[0].differences.get("--set")
    shape = format_shape({name: getattr(record, name) for name in ("heads_q", "heads_kv", "head_dim", "head_dim_v")})
    return [f"speeds change with the length as those of {shape}{f', {params}' if params else ''} do"]


def _can_build(question: Question) -> bool:
    """Whether the mask that is asked for follows from the question alone, up to its seed."""
    if question.gpus > 1 or question.own_documents or question.source != "random":
        return False
    return not question.is_pattern or question.seqlen <= LONGEST_PATTERN


def _is_other_problem(question: Question, near: Near) -> bool:
    """Whether a block pattern has another number of patterns than one per KV head, or than asked for: that is no matter of work."""
    asked = question.params.get("heads", near.record.heads_kv)
    return question.is_pattern and near.record.params.get("heads", asked) != asked


def _by_shape(near: Sequence[Near]) -> dict[tuple[object, ...], list[Near]]:
    """Records by everything but their length."""
    shape = attrgetter("record.heads_q", "record.heads_kv", "record.head_dim", "record.head_dim_v")
    return grouped(near, lambda one: (*shape(one), one.differences.get("--set")))


def _geometry(question: Question, group: Iterable[Near]) -> Geometry:
    return Geometry.of(question.seqlen, {one.record.seqlen for one in group})


def _distance(question: Question, group: Sequence[Near]) -> float:
    """How far a shape and its nearest length are from the question: factors of two, added up."""
    record = group[0].record
    factors = [record.heads_q / question.heads_q, question.heads_kv / record.heads_kv * record.heads_q / question.heads_q]
    factors += [record.head_dim / question.head_dim, record.head_dim_v / question.head_dim_v]
    wanted = question.all_params
    for name, value in record.params.items():
        asked = wanted.get(name)
        if isinstance(asked, int | float) and asked > 0 and value > 0:
            factors.append(value / asked)
    length = min(abs(math.log2(one.record.seqlen / question.seqlen)) for one in group)
    return length + sum(abs(math.log2(factor)) for factor in factors)


def _differences(question: Question, used: Sequence[Near], geometry: Geometry) -> list[str]:
    record = used[0].record
    sentences = []
    if geometry.lengths != (question.seqlen,):
        near = "length is" if len(geometry.lengths) == 1 else "lengths are"
        measured = f"{near} {' and '.join(map(format_size, geometry.lengths))}"
        beyond = "" if geometry.is_between else f": {geometry.nearest_ratio:.3g} times {'shorter' if geometry.below else 'longer'}"
        sentences.append(f"{format_size(question.seqlen)} tokens were not measured in this shape; the nearest measured {measured}{beyond}")
    shape = {name: getattr(record, name) for name in ("heads_q", "heads_kv", "head_dim", "head_dim_v")}
    if any(value != getattr(question, name) for name, value in shape.items()):
        asked = format_shape(vars(question))
        sentences.append(f"there is no record of this mask near this length with {asked}; the nearest shape is {format_shape(shape)}")
    if params := used[0].differences.get("--set"):
        sentences.append(f"these parameters of the mask were not measured; the nearest are {params}")
    return sentences


def _densities(predicted: _Prediction, used: Sequence[Near]) -> list[str]:
    """A sentence where documents, which are drawn anew for each length, make a mask much denser or sparser than the measured one."""
    question, length = predicted.question, predicted.nearest_length
    record = next(one.record for one in used if one.record.seqlen == length)
    if not question.has_documents or length == question.seqlen or not record.area:
        return []
    asked, measured = predicted.mask(record.seed).density, record.area / length**2
    if not asked or max(asked / measured, measured / asked) < DENSER:
        return []
    shares = f"{100 * asked:.2g} % of all pairs are visible at {format_size(question.seqlen)} tokens, and {100 * measured:.2g} %"
    return [f"with seed {record.seed}, {shares} at {format_size(length)}: documents are drawn anew for each length"]


@dataclass(frozen=True)
class _Prediction:
    question: Question
    geometry: Geometry
    work: TileWork
    errors: Errors
    trend: Trend | None = None

    @property
    def nearest_length(self) -> int:
        return min(self.geometry.lengths, key=self.geometry.distance)

    @property
    def is_far(self) -> bool:
        return self.geometry.nearest_ratio > FARTHEST

    def of_part(self, part: Pass) -> _Prediction:
        """The same of one pass alone."""
        return replace(self, question=replace(self.question, pass_=part))

    def mask(self, seed: int) -> AnyMask:
        question = self.question
        named = masks.find(question.mask)
        if isinstance(named, masks.MaskFile):
            return named.mask
        params: dict[str, Any] = {"heads": question.heads_kv} if question.is_pattern and "heads" in named.defaults else {}
        params |= {"distribution": question.distribution, "packing": question.packing} if question.has_documents else {}
        return masks.build(question.mask, question.seqlen, seed=seed, **params | dict(question.params))

    def figure(self, mask: AnyMask, neighbours: Mapping[int, Figure]) -> Figure:
        """The figure on a mask, from one figure per measured length; the records of the nearest length come first."""
        case = case_of(self.question, mask, "cuda")
        nearest = neighbours[self.nearest_length]
        ms = work = 0.0
        for at, record in enumerate(nearest.records):
            work += flops(mask, case, record.pass_)
            rates = {n: self.work.of_record(figure.records[at]) / figure.records[at].times.median for n, figure in neighbours.items()}
            rate = self.geometry.interpolate(rates) if self.trend is None else rates[self.nearest_length] * (self.trend.of(record) or 1.0)
            ms += self.work.of_mask(mask, case, record.pass_) / rate
        low, high = self.errors.of(nearest.records[0].label).range or (1.0, 1.0)
        speed = tflops(work, ms)
        share = nearest.mfu and speed * nearest.mfu / nearest.tflops
        others = [] if self.trend else [record for n, figure in neighbours.items() if n != self.nearest_length for record in figure.records]
        return Figure(ms, ms * low, ms * high, speed, share, self._peak_gib(neighbours), (*nearest.records, *others))

    def _peak_gib(self, neighbours: Mapping[int, Figure]) -> float | None:
        """Memory per token and query head, interpolated."""
        question = self.question
        sizes: dict[int, float] = {}
        for n, figure in neighbours.items():
            record = figure.records[0]
            if figure.peak_gib is None or figure.peak_gib <= 0:
                return None
            sizes[n] = figure.peak_gib / (n * record.heads_q * (record.head_dim + record.head_dim_v))
        per_unit = self.geometry.interpolate(sizes)
        return per_unit * question.seqlen * question.heads_q * (question.head_dim + question.head_dim_v)


def _entries(predicted: _Prediction, named: Sequence[Row], device: str, part_of: Pass | None = None) -> tuple[Entry, ...]:
    """One entry per kernel at the nearest length; a kernel that failed there, or does not take the shape, is out."""
    first, pass_ = predicted.nearest_length, predicted.question.pass_
    by_length = {n: entries([row for row in named if row.record.seqlen == n], pass_, part_of) for n in predicted.geometry.read}
    others = {n: {entry.line: entry for entry in own} for n, own in by_length.items() if n != first}
    made = []
    for entry in by_length[first]:
        if entry.out:
            made.append(Entry(entry.line, {}, _out(predicted, entry.out, named[0].record.seed, device)))
            continue
        figures: dict[str, Figure] = {}
        for figure in entry.figures.values():
            mask = predicted.mask(figure.records[0].seed)
            if reason := refusal(figure.records[0].label, mask, case_of(predicted.question, mask, device)):
                made.append(entry.without(Status.UNSUPPORTED.value, reason))
                break
            if predicted.is_far and predicted.trend and not all(map(predicted.trend.of, figure.records)):
                made.append(entry.without(NOT_MEASURED, f"there is no record of it near {format_size(predicted.question.seqlen)} tokens"))
                break
            neighbours = {first: figure}
            for n, lines in others.items():
                if (same := _same_seed(lines.get(entry.line), figure)) is not None:
                    neighbours[n] = same
            figures[mask.digest] = predicted.figure(mask, neighbours)
        else:
            made.append(Entry(entry.line, figures))
    return tuple(made)


def _out(predicted: _Prediction, out: Out, seed: int, device: str) -> Out:
    """Why a kernel that is out at the nearest length is out here; without a record there, that it does not take the shape says more."""
    if out.status == NOT_MEASURED:
        mask = predicted.mask(seed)
        if reason := refusal(out.line, mask, case_of(predicted.question, mask, device)):
            return Out(out.line, Status.UNSUPPORTED.value, reason)
    return Out(out.line, out.status, f"at {format_size(predicted.nearest_length)}: {out.reason}")


def _same_seed(entry: Entry | None, figure: Figure) -> Figure | None:
    """The figure of the same seed and passes at another length, or any where the mask draws nothing."""
    if entry is None or entry.out:
        return None
    passes = [record.pass_ for record in figure.records]
    alike = [other for other in entry.figures.values() if [record.pass_ for record in other.records] == passes]
    return next((other for other in alike if other.records[0].seed == figure.records[0].seed), alike[0] if alike else None)
