"""The nearest answer where no record answers exactly: times of the nearest measured lengths and shape, scaled by work.

A kernel's time at another length is the work there (whole tiles that the mask touches) over its rate, which is interpolated between
the nearest shorter and the nearest longer length. Beyond the last length it changes as that of another shape does, or is that of the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from longca.kernels.base import Case
from longca.masks import AnyMask
from longca.recommend.basis import basis_of
from longca.recommend.between_windows import Between, between, window_of
from longca.recommend.geometry import FARTHEST, Geometry
from longca.recommend.idle import idle
from longca.recommend.matching import Near, other_params
from longca.recommend.memory import queries_gib, results_gib
from longca.recommend.nearest_error import COVERED, Errors
from longca.recommend.neighbours import Neighbours, shape_of
from longca.recommend.question import Question
from longca.recommend.trend import Rates
from longca.recommend.unmeasured import case_of, refusal
from longca.results.metrics import flops, tflops
from longca.results.naming import Row, rows
from longca.results.problem import Pass
from longca.results.ranking import NOT_MEASURED, Entry, Figure, Out, entries
from longca.results.reading import Results
from longca.results.record import Environment, Record, Status
from longca.results.tile_work import TileWork
from longca.text import format_shape, format_size, format_tokens

DENSER = 1.5  # times as many visible pairs
ALMOST = 1.01  # times a parameter: models count the token itself in a window, so that w=127 is asked for beside w=128
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
    unknown: tuple[str, ...]  # clauses: why the error is unknown, so that there is no range
    guided: bool  # whether speeds change with the length as those of another shape do

    def to_json(self) -> dict[str, object]:
        about = {"lengths": list(self.lengths), "differences": list(self.differences)}
        return about | {"range_covers": COVERED, "unknown": list(self.unknown)}


def nearest(question: Question, others: Iterable[Near], results: Results) -> Nearest | None:
    """The prediction from the nearest records; None where none is near enough, or the mask cannot be built."""
    basis = None if unbuildable(question) else basis_of(question, list(others), results)
    if basis is None:
        return None
    found = basis.found
    records, geometry = found.records, found.geometry
    environments = tuple(one.environment for one in found.used)
    device = "cpu" if all(environment.on_cpu for environment in environments) else "cuda"
    flags = {flag for one in found.used for flag in one.differences} - {"--seqlen"} - _hardly_different(question, records[0])
    other = between(basis.question, found, basis.candidates, results)
    errors = Errors(results, question.mask, geometry, flags, window_of(basis.question, found, basis.candidates, other))
    unknown = *basis.unknown, *errors.unknown, *filter(None, [idle(question, errors.behind) if device == "cuda" else ""])
    work = TileWork(results.masks, (*found.all_records, *(other.found.all_records if other else ())))
    way = _Way(other, _Scaled.of(other.found, work, results)) if other else None
    predicted = _Prediction(question, _Scaled.of(found, work, results), None if unknown else errors, way, basis.lacking)
    made = _entries(predicted, device)
    parts = [_entries(predicted.of_part(part), device, question.pass_) for part in question.pass_.parts if len(question.pass_.parts) > 1]
    mask = question.build(records[0].problem.seed)
    interpolated = [way.sentence(made, *parts)] if way else []
    differences = *basis.differences, *_differences(question, found), *interpolated, *found.guided(), *_densities(predicted, records)
    return Nearest(made, tuple(parts), mask, records, environments, geometry.lengths, differences, unknown, bool(found.guide))


def unbuildable(question: Question) -> str:
    """Why the mask that is asked for does not follow from the question alone, up to its seed, so that nothing is scaled; empty where it
    does."""
    if question.gpus > 1:
        return "nearest answers are of one GPU only"
    if question.own_documents or question.source != "random":
        return f"there is no nearest answer for {'documents of a workload' if question.own_documents else 'blocks that a rule selects'}"
    if question.is_pattern and question.seqlen > LONGEST_PATTERN:
        return f"a nearest answer of a block pattern has up to {format_tokens(LONGEST_PATTERN)}"
    return ""


def _differences(question: Question, found: Neighbours) -> list[str]:
    record, geometry = found.records[0], found.geometry
    sentences = []
    if geometry.lengths != (question.seqlen,):
        near = "length is" if len(geometry.lengths) == 1 else "lengths are"
        measured = f"{near} {' and '.join(map(format_size, geometry.lengths))}"
        beyond = "" if geometry.is_between else f": {geometry.nearest_ratio:.3g} times {'shorter' if geometry.below else 'longer'}"
        tokens = f"{format_tokens(question.seqlen)} {'was' if question.seqlen == 1 else 'were'}"
        sentences.append(f"{tokens} not measured in this shape; the nearest measured {measured}{beyond}")
    shape, asked = shape_of(record), format_shape(vars(question))
    if shape != asked:
        sentences.append(f"there is no record of this mask near this length with {asked}; the nearest shape is {shape}")
    if params := other_params(record, question.params):
        these = "this parameter of the mask was" if len(params) == 1 else "these parameters of the mask were"
        values = " and ".join(_with_distance(question, name, value) for name, value in params.items())
        sentences.append(f"{these} not measured; the nearest {'is' if len(params) == 1 else 'are'} {values}")
    return sentences


def _hardly_different(question: Question, record: Record) -> set[str]:
    """The flag of parameters that differ from measured ones by less than 1 %, which adds no error."""
    return (
        {"--set"} if all(_ratio(question, name, value) < ALMOST for name, value in other_params(record, question.params).items()) else set()
    )


def _ratio(question: Question, name: str, value: float) -> float:
    """A measured parameter over the one asked for, or the other way round: at least 1; infinite where they cannot be compared."""
    asked = question.all_params.get(name)
    is_comparable = isinstance(asked, int | float) and min(asked, value) > 0
    return max(asked / value, value / asked) if is_comparable and asked is not None else math.inf


def _with_distance(question: Question, name: str, value: float) -> str:
    """A measured parameter, and how far it is from the one asked for: 'w=1024, 8 times wider'."""
    asked, ratio = question.all_params.get(name), _ratio(question, name, value)
    if math.isinf(ratio) or asked is None:
        return f"{name}={value}"
    larger, smaller = ("wider", "narrower") if name == "w" else ("larger", "smaller")
    word = larger if value > asked else smaller
    return f"{name}={value}, {'hardly' if ratio < ALMOST else f'{ratio:.0f} times' if ratio >= 100 else f'{ratio:.3g} times'} {word}"


def _densities(predicted: _Prediction, records: Sequence[Record]) -> list[str]:
    """A sentence where documents, which are drawn anew for each length, make a mask much denser or sparser than the measured one."""
    question, length = predicted.question, predicted.geometry.nearest
    record = next(record for record in records if record.problem.seqlen == length)
    if not question.has_documents or length == question.seqlen or not record.built.area:
        return []
    asked, measured = question.build(record.problem.seed).density, record.built.area / length**2
    if not asked or max(asked / measured, measured / asked) < DENSER:
        return []
    shares = f"{100 * asked:.2g} % of all pairs are visible at {format_tokens(question.seqlen)}, and {100 * measured:.2g} %"
    return [f"with seed {record.problem.seed}, {shares} at {format_size(length)}: documents are drawn anew for each length"]


@dataclass(frozen=True)
class _Scaled:
    """Records of one mask in one shape, and the rates that follow from them at the length that is asked for."""

    rates: Rates
    named: Sequence[Row]

    @classmethod
    def of(cls, found: Neighbours, work: TileWork, results: Results) -> _Scaled:
        return cls(found.rates(work), rows(replace(results, records=list(found.records))))

    def lines(self, pass_: Pass, part_of: Pass | None) -> dict[int, dict[str, Entry]]:
        """The measured entries by length and kernel."""
        lengths = self.rates.geometry.read
        measured = {n: entries([row for row in self.named if row.record.problem.seqlen == n], pass_, part_of) for n in lengths}
        return {n: {entry.line: entry for entry in own} for n, own in measured.items()}

    def rate(self, figures: Mapping[int, Figure], at: int) -> float:
        """The rate of one kernel in the pass of the record with this number, from its figures by length."""
        return self.rates.of({n: figure.records[at] for n, figure in figures.items()})


@dataclass(frozen=True)
class _Way:
    """To another value of a parameter, on the other side of that asked for."""

    between: Between
    scaled: _Scaled  # there

    def leads(self, there: Mapping[int, Figure]) -> bool:
        """Whether a kernel with these figures has a rate there."""
        return self.scaled.rates.geometry.nearest in there

    def ms(self, tiles: float, rate: float, case: Case, at: int, there: Mapping[int, Figure]) -> float:
        """The time of this work in one pass; at most that of the plainer mask, which contains all that the others show."""
        other = self.scaled.rate(there, at)
        ms = tiles / self.between.rate(rate, other)
        if not self.between.is_whole:
            return ms
        record = there[self.scaled.rates.geometry.nearest].records[at]
        return min(ms, self.scaled.rates.work.of_mask(self.between.question.build(record.problem.seed), case, record.problem.pass_) / other)

    def sentence(self, *made: Iterable[Entry]) -> str:
        """What was interpolated, and for which of these kernels not."""
        nearest = self.scaled.rates.geometry.nearest
        there = {row.record.label for row in self.scaled.named if row.record.problem.seqlen == nearest and row.record.ok}
        return self.between.sentence({entry.line for own in made for entry in own if not entry.out} - there)


@dataclass(frozen=True)
class _Prediction:
    question: Question
    scaled: _Scaled
    errors: Errors | None  # None: unknown
    way: _Way | None
    lacking: Sequence[str]  # what is asked for and no record has

    @property
    def rates(self) -> Rates:
        return self.scaled.rates

    @property
    def geometry(self) -> Geometry:
        return self.rates.geometry

    def of_part(self, part: Pass) -> _Prediction:
        """The same of one pass alone."""
        return replace(self, question=replace(self.question, pass_=part))

    def is_out_of_reach(self, records: Iterable[Record]) -> bool:
        """Whether the length is far from the measured ones, and no other shape tells how this kernel's rates go on."""
        trend = self.rates.trend
        return self.geometry.nearest_ratio > FARTHEST and not (trend and all(map(trend.of, records)))

    def refusal(self, label: str, mask: AnyMask, device: str) -> str:
        """Why the kernel does not take what is asked for. One that is not loaded is out where its records do not tell."""
        silent = f"is of a plugin, and its records do not tell whether it takes {' and '.join(self.lacking)}" if self.lacking else ""
        return refusal(label, mask, case_of(self.question, mask, device), silent)

    def figure(self, mask: AnyMask, neighbours: Mapping[int, Figure], there: Mapping[int, Figure]) -> Figure:
        """The figure on a mask, from one figure per measured length, here and at the other end of the way; the records of the nearest
        length come first."""
        case = case_of(self.question, mask, "cuda")
        nearest = neighbours[self.geometry.nearest]
        ms = work = 0.0
        for at, record in enumerate(nearest.records):
            work += flops(mask, case, record.problem.pass_)
            tiles, rate = self.rates.work.of_mask(mask, case, record.problem.pass_), self.scaled.rate(neighbours, at)
            ms += self.way.ms(tiles, rate, case, at, there) if self.way and self.way.leads(there) else tiles / rate
        error = self.errors.of(nearest.records[0].label).range if self.errors else None
        low, high = error or (1.0, 1.0)
        speed = tflops(work, ms)
        share = nearest.mfu and speed * nearest.mfu / nearest.tflops
        trend = self.rates.trend
        others = () if trend else (n for n in neighbours if n != self.geometry.nearest)
        records = *nearest.records, *(record for n in others for record in neighbours[n].records)
        leading = [other for record in nearest.records for other in trend.alike(record)] if trend else []
        across = [record for figure in there.values() for record in figure.records] if self.way and self.way.leads(there) else []
        return Figure(ms, ms * low, ms * high, speed, share, self._peak_gib(neighbours), records, (*leading, *across))

    def _peak_gib(self, neighbours: Mapping[int, Figure]) -> float | None:
        """Memory beside the inputs: that of the results, and the rest per token and query head, interpolated."""
        rest: dict[int, float] = {}
        for n, figure in neighbours.items():
            if figure.peak_gib is None or figure.peak_gib <= 0:
                return None
            record = figure.records[0]
            rest[n] = max(0.0, figure.peak_gib - results_gib(record, self.question.pass_)) / queries_gib(record)
        rate = self.geometry.interpolate(rest) if all(rest.values()) else max(rest.values())
        return results_gib(self.question, self.question.pass_) + rate * queries_gib(self.question)


def _entries(predicted: _Prediction, device: str, part_of: Pass | None = None) -> tuple[Entry, ...]:
    """One entry per kernel at the nearest length; a kernel that failed there, or does not take the shape, is out."""
    question, first = predicted.question, predicted.geometry.nearest
    here = predicted.scaled.lines(question.pass_, part_of)
    there = predicted.way.scaled.lines(question.pass_, part_of) if predicted.way else {}
    made = []
    for entry in here[first].values():
        if entry.out:
            made.append(Entry(entry.line, {}, _out(predicted, entry.out, device)))
            continue
        figures: dict[str, Figure] = {}
        for figure in entry.figures.values():
            mask = question.build(figure.records[0].problem.seed)
            if reason := predicted.refusal(figure.records[0].label, mask, device):
                made.append(entry.without(Status.UNSUPPORTED.value, reason))
                break
            if predicted.is_out_of_reach(figure.records):
                made.append(entry.without(NOT_MEASURED, f"there is no record of it near {format_tokens(question.seqlen)}"))
                break
            neighbours = _same_seeds(here, entry.line, figure) | {first: figure}
            figures[mask.digest] = predicted.figure(mask, neighbours, _same_seeds(there, entry.line, figure))
        else:
            made.append(Entry(entry.line, figures))
    return tuple(made)


def _out(predicted: _Prediction, out: Out, device: str) -> Out:
    """Why a kernel that is out at the nearest length is out here; without a record there, that it does not take the shape says more."""
    if out.status == NOT_MEASURED:
        mask = predicted.question.build(predicted.scaled.named[0].record.problem.seed)
        if reason := predicted.refusal(out.line, mask, device):
            return Out(out.line, Status.UNSUPPORTED.value, reason)
    return Out(out.line, out.status, f"at {format_size(predicted.geometry.nearest)}: {out.reason}")


def _same_seeds(lines: Mapping[int, Mapping[str, Entry]], line: str, figure: Figure) -> dict[int, Figure]:
    """The kernel's figures of the same seed and passes by length, or any where the mask draws nothing."""
    passes, seed = [record.problem.pass_ for record in figure.records], figure.records[0].problem.seed
    found = {}
    for n, own in lines.items():
        entry = own.get(line)
        timed = [] if entry is None or entry.out else entry.figures.values()
        alike = [other for other in timed if [record.problem.pass_ for record in other.records] == passes]
        if alike:
            found[n] = next((other for other in alike if other.records[0].problem.seed == seed), alike[0])
    return found
