"""Which records answer a question: those of this very problem, or else the nearest ones, whose times are scaled.

The nearest answer has one rule. The nearest shape serves all kernels: head size counts first, then the window, then heads and length, in
doublings. A kernel's rate, in touched tiles per time, is linear in the logarithm of the tokens; on masks with documents in that of the
visible pairs per token, which says how long the documents are. Beyond the measured lengths the rate is that of the last one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from msgspec.structs import replace as replace_fields

from longca.errors import BadInput, LongcaError
from longca.kernels import registry
from longca.kernels.base import BYTES, Case, No
from longca.masks import AnyMask
from longca.recommend.question import Question, default_params
from longca.results.grouping import grouped
from longca.results.metrics import GIB, flops, tflops
from longca.results.naming import rows
from longca.results.problem import Pass, Problem
from longca.results.ranking import Entry, Figure, Out, entries, of_one_clock
from longca.results.reading import Results
from longca.results.record import Environment, LevelName, Record, Status
from longca.results.tile_work import TileWork

ANSWERED = frozenset({"mask", "pass_", "seed", "scale"})  # fields of a problem that do not tell records from a question about this mask
DRAWING = frozenset({"documents", "distribution", "packing"})
NOT_SCALED = frozenset({"ranks", "dtype", "source", "deterministic", "cudagraph", "device"})
OTHER_TERMS = frozenset({"softcap", "sinks"})  # in the scores
WITHOUT_DOCUMENTS, WITH_DOCUMENTS = 0.1, 0.3  # of a predicted time: benchmarks/nearest_answers.py counts the times within
ALMOST = 0.015  # doublings: models count the token itself in a window, so that w=127 is asked for beside w=128
FAR = 4  # times the longest measured length, beyond which the error is unknown; below the shortest by as much nothing is scaled
LONGEST_PATTERN = 1 << 17  # tokens of a block pattern: a longer one takes too long to build


class SeveralDevices(BadInput):
    """Records of several devices could answer, and the question names none."""

    def __init__(self, devices: tuple[str, ...], what: str) -> None:
        super().__init__(f"records of several devices {what} ({', '.join(devices)}); choose one with --device.")
        self.devices = devices


class Near(NamedTuple):
    """A record of the mask that is asked for, and in what it differs from the question: by field the record's value."""

    record: Record
    environment: Environment
    differences: Mapping[str, Any]


def near_records(question: Question, results: Results) -> list[Near]:
    """The records of this mask, or where no record has its name, those of the same pairs at this length (`causal & causal` is `causal`);
    those without differences answer the question."""
    problem, records = question.problem, [record for record in results.records if not answers_nothing(record)]
    own = [record for record in records if record.problem.mask == problem.mask]
    if not own:
        alike = [record for record in records if record.problem.seqlen == problem.seqlen]
        own = [record for record in alike if record.built.digest == question.build(record.problem.seed).digest]
    places = {record.env: results.environment(record) for record in own}
    others = {name: place.name for name, place in places.items() if not is_device(question.device, place)}
    return [Near(record, places[record.env], differences(question, record, others.get(record.env))) for record in own]


def differences(question: Question, record: Record, other_device: str | None) -> dict[str, Any]:
    """In what a record differs from the question: by field the record's value; {} answers it."""
    asked, own = question.problem, record.problem
    compared = [name for name in Problem.__struct_fields__ if name not in ANSWERED | {"params", "documents"}]
    differing = {name: value for name in compared if (value := getattr(own, name)) != getattr(asked, name)}
    if asked.documents:  # however others were drawn
        differing = {name: value for name, value in differing.items() if name not in DRAWING}
        if record.built.digest != question.build(0).digest:
            differing["documents"] = record.built.digest
    elif (own.documents is not None) != question.own_documents:
        differing["own_documents"] = own.documents is not None
    if params := other_params(record, dict(asked.params)):
        differing["params"] = params
    if other_device is not None:
        differing["device"] = other_device
    return differing


def answers_nothing(record: Record) -> bool:
    """Whether it was simulated, or is a method's on one rank, which is a baseline, or of ranks that share a GPU, as nobody trains."""
    alone_or_shared = record.problem.ranks == 1 or record.problem.sharing is not None
    return record.simulated is not None or (record.level is LevelName.CP and alone_or_shared)


def is_device(words: str, environment: Environment) -> bool:
    """Whether all of these words are words of the device's name (an H20 is no H200), or they are its kind: cpu, cuda."""
    if not words:
        return True
    wanted, named = (set(re.findall(r"\w+", name.lower())) for name in (words, environment.name))
    return wanted <= named or words.lower() == environment.device_kind


def of_one_device(question: Question, near: Sequence[Near], what: str) -> list[Near]:
    """The records of the device of this very name where there are any (an H200 beside an H200 NVL); raises SeveralDevices where the
    records are of more than one. `what` they do."""
    names = {one.record.env: one.environment.name for one in near}
    same = {env for env, name in names.items() if name.lower() == question.device.lower()} or names.keys()
    devices = tuple(sorted({names[env] for env in same}))
    if len(devices) > 1:
        raise SeveralDevices(devices, what)
    return [one for one in near if one.record.env in same]


def other_params(record: Record, asked: Mapping[str, int | float]) -> dict[str, int | float]:
    """Parameters of a record's mask, as built, that are neither as asked for nor the mask's default. One that a mask draws from its seed
    differs where it was set by hand."""
    if not record.built.params:
        return {}
    usual = default_params(replace_fields(record.problem, params=tuple(asked.items())))
    by_hand = dict(record.problem.params)
    differing = {}
    for name, value in record.built.params.items():
        wanted = asked.get(name, usual.get(name))
        if name in by_hand if callable(wanted) else value != wanted:
            differing[name] = value
    return differing


@dataclass(frozen=True)
class Nearest:
    """The prediction, and what it was scaled from."""

    entries: Callable[[Pass, Pass | None], list[Entry]]  # of a pass, which may be a part of another one
    used: list[Near]  # the records of the nearest shape
    seqlens: tuple[int, ...]  # the measured lengths next to the one asked for
    differences: Mapping[str, Any]  # of the nearest shape, by field its value
    spread: float | None  # the range of a time, as a share of it; None: unknown

    def to_json(self) -> dict[str, object]:
        return {"seqlens": list(self.seqlens), "differences": dict(self.differences), "range": self.spread}


def nearest(question: Question, candidates: Iterable[Near], results: Results) -> Nearest | None:
    """The prediction from the nearest shape; None where there is none, or the mask does not follow from the question."""
    problem = question.problem
    is_long = problem.is_pattern and problem.seqlen > LONGEST_PATTERN
    if problem.ranks > 1 or question.own_documents or problem.source != "random" or is_long:
        return None
    scaled = [one for one in candidates if not (one.differences.keys() & NOT_SCALED or one.record.method)]
    scaled = [one for one in scaled if not (problem.is_pattern and _has_other_patterns(problem, one.record))]
    shapes = [own for own in grouped(of_one_device(question, scaled, "come near this"), _shape).values() if any(n.record.ok for n in own)]
    if not shapes:
        return None
    used = min(shapes, key=lambda own: _distance(question, own))
    lengths = sorted({one.record.problem.seqlen for one in used if one.record.ok})
    around = {max((n for n in lengths if n <= problem.seqlen), default=lengths[0])}
    around.add(min((n for n in lengths if n >= problem.seqlen), default=lengths[-1]))
    if problem.seqlen * FAR < lengths[0]:  # launching the kernel takes longer than so little work
        return None
    first = min(around, key=lambda n: _doublings(n, problem.seqlen))
    return Nearest(
        _Prediction(question, used, first, results).entries,
        used,
        seqlens=tuple(sorted(around)),
        differences={name: value for name, value in used[0].differences.items() if name not in ("seqlen", "documents")},
        spread=_spread(question, used[0], lengths),
    )


def _has_other_patterns(problem: Problem, record: Record) -> bool:
    """Whether a block pattern has another number of patterns than one per KV head, or than asked for: no scaling accounts for that."""
    asked = dict(problem.params).get("heads", record.problem.heads_kv)
    return record.built.params.get("heads", asked) != asked


def _shape(near: Near) -> tuple[object, ...]:
    """All but the length and the seed; drawn documents are alike where the question gives documents of its own."""
    problem = near.record.problem
    drawn = () if "documents" in near.differences else (problem.distribution, problem.packing, problem.documents is not None)
    return replace_fields(problem.operator, scale=0.0), *drawn, tuple(sorted(near.differences.get("params", {}).items()))


def _doublings(one: float, other: float) -> float:
    return round(abs(math.log2(one / other)), 6)  # rounded: equal sums differ in the last digit


def _apart(question: Question, near: Near) -> float:
    """How far the parameters of the mask are from those asked for, in doublings; infinite where they do not compare."""
    wanted = question.all_params
    values = [(value, wanted.get(name)) for name, value in near.differences.get("params", {}).items()]
    comparable = all(isinstance(asked, int | float) and min(asked, value) > 0 for value, asked in values)
    return sum(_doublings(value, asked) for value, asked in values if asked) if comparable else math.inf


def _distance(question: Question, shape: Sequence[Near]) -> tuple[float, ...]:
    """How far a shape is: other terms in the scores or other documents, head sizes, the window, then heads and length together."""
    near, own, asked = shape[0], shape[0].record.problem, question.problem
    others = len(near.differences.keys() & (OTHER_TERMS | DRAWING - {"documents"} | {"own_documents"}))
    sizes = _doublings(own.head_dim, asked.head_dim) + _doublings(own.head_dim_v, asked.head_dim_v)
    heads = _doublings(own.heads_q, asked.heads_q) + _doublings(own.heads_kv, asked.heads_kv)
    length = min(_doublings(one.record.problem.seqlen, asked.seqlen) for one in shape if one.record.ok)
    return others, sizes, _apart(question, near), heads + length


def _spread(question: Question, near: Near, lengths: Sequence[int]) -> float | None:
    """The range of a time; None where the error is unknown: other terms in the scores, documents that were drawn otherwise, less side by
    side than was ever measured (part of the device may be idle), or a length far beyond the measured ones."""
    problem = question.problem
    others = near.differences.keys() & {"head_dim", "head_dim_v", "distribution", "packing", *OTHER_TERMS}
    is_other = others or _apart(question, near) > ALMOST
    is_small = problem.seqlen * problem.heads_q < lengths[0] * near.record.problem.heads_q
    if is_other or is_small or problem.seqlen > FAR * lengths[-1]:
        return None
    return WITH_DOCUMENTS if question.has_documents else WITHOUT_DOCUMENTS


class _Prediction:
    """Times of the kernels of one shape on the masks that are asked for."""

    def __init__(self, question: Question, used: Sequence[Near], first: int, results: Results) -> None:
        records = [near.record for near in used]
        self.question, self.first = question, first  # the nearest length, where kernels must have records
        named = of_one_clock(rows(replace(results, records=records)))  # of all lengths: a rate lies between those of two
        self._rows = grouped(named, lambda row: row.record.problem.seqlen)
        self._work = TileWork(results.masks, records)
        self._device = "cpu" if all(near.environment.on_cpu for near in used) else "cuda"

    def entries(self, pass_: Pass, part_of: Pass | None) -> list[Entry]:
        """One entry per kernel at the nearest length; a kernel that failed there, or does not take what is asked, is out."""
        measured = {seqlen: entries(own, pass_, part_of) for seqlen, own in self._rows.items()}
        everywhere: dict[str, list[Figure]] = {}
        for entry in (entry for own in measured.values() for entry in own if not entry.out):
            everywhere.setdefault(entry.line, []).extend(entry.figures.values())
        problem = replace_fields(self.question.problem, pass_=pass_)
        return [self._entry(problem, entry, everywhere.get(entry.line, [])) for entry in measured[self.first]]

    def _entry(self, problem: Problem, entry: Entry, figures: Sequence[Figure]) -> Entry:
        if entry.out:
            return Entry(entry.line, {}, Out(entry.line, entry.out.status, {**entry.out.why, "at": self.first}))
        predicted: dict[str, Figure] = {}
        for near in entry.figures.values():
            mask = self.question.build(0 if problem.documents else near.records[0].problem.seed)
            case = case_of(problem, mask, self._device)
            if reason := refusal(near.records[0].label, mask, case):
                return entry.without(Status.UNSUPPORTED.value, reason=reason)
            predicted[mask.digest] = self._figure(problem, mask, case, near, figures)
        return Entry(entry.line, predicted)

    def _figure(self, problem: Problem, mask: AnyMask, case: Case, near: Figure, figures: Sequence[Figure]) -> Figure:
        ms = work = 0.0
        for pass_ in (record.problem.pass_ for record in near.records):
            same = [record for figure in figures for record in figure.records if record.problem.pass_ is pass_]
            rates = {place: self._rate(own) for place, own in grouped(same, self._place).items()}
            ms += self._work.of_mask(mask, case, pass_) / _interpolated(rates, self._place_of(mask))
            work += flops(mask, case, pass_)
        return Figure(ms, tflops(work, ms), None, _peak_gib(problem, near), near.records, [ms])

    def _rate(self, records: Iterable[Record]) -> float:
        """All work over all time: several seeds may be at one place."""
        parts = [(self._work.of_record(record), record.times.median) for record in records]
        return sum(work for work, _ in parts) / sum(ms for _, ms in parts)

    def _place(self, record: Record) -> float:
        """Where a record lies on the line of rates."""
        return (record.built.area or 1) / record.problem.seqlen if self.question.has_documents else record.problem.seqlen

    def _place_of(self, mask: AnyMask) -> float:
        return mask.area / mask.seqlen_q if self.question.has_documents else mask.seqlen_q


def _interpolated(values: Mapping[float, float], place: float) -> float:
    """The value at a place, linear in its logarithm between the places next to it; beyond the last one its value."""
    low = max((at for at in values if at <= place), default=min(values))
    high = min((at for at in values if at >= place), default=max(values))
    if low >= high:
        return values[low]
    part = math.log(place / low) / math.log(high / low)
    return (1 - part) * values[low] + part * values[high]


def _peak_gib(problem: Problem, near: Figure) -> float | None:
    """Memory beside the inputs: that of the results, whose size is known, and the rest per token and query head."""
    if near.peak_gib is None or near.peak_gib <= 0:
        return None
    measured = near.records[0].problem
    rest = max(0.0, near.peak_gib - _results_gib(measured, problem.pass_)) / _queries_gib(measured)
    return _results_gib(problem, problem.pass_) + rest * _queries_gib(problem)


def _results_gib(problem: Problem, pass_: Pass) -> float:
    """The size of out, and for a backward also of dq, dk and dv."""
    per_token = problem.heads_q * problem.head_dim_v
    if pass_ is not Pass.FWD:
        per_token += problem.heads_q * problem.head_dim + problem.heads_kv * (problem.head_dim + problem.head_dim_v)
    return problem.seqlen * per_token * BYTES[problem.dtype] / GIB


def _queries_gib(problem: Problem) -> float:
    """The size of q and out, over which other memory is scaled: sums in fp32, lse, what a kernel keeps."""
    return problem.seqlen * problem.heads_q * (problem.head_dim + problem.head_dim_v) * BYTES[problem.dtype] / GIB


def case_of(problem: Problem, mask: AnyMask, device: str) -> Case:
    """The attention call that is asked for, on this mask."""
    return problem.case(mask, device, grad=problem.pass_ is not Pass.FWD)


def refusal(label: str, mask: AnyMask, case: Case) -> str:
    """Why a kernel does not take this mask in this shape; empty where it does. A kernel of a plugin that is not loaded takes what its
    records have, which is neither a softcap nor sinks."""
    try:
        answer = registry.supports(registry.get(label), mask, case)
    except LongcaError:
        return "is of a plugin that is not loaded, and no record has softcap or sinks" if case.softcap or case.sinks else ""
    return answer.reason if isinstance(answer, No) else ""
