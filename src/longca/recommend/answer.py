"""The answer: which kernel, or which method on many GPUs, to use.

Where no record answers exactly, there is a nearest answer, marked as such, with the run that would tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replace_fields

from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.backends.best import Best
from longca.recommend.advice import advice, ask_command, simulate_command
from longca.recommend.by_calls import Leader, Step, steps_of
from longca.recommend.closest import SHOWN
from longca.recommend.elsewhere import FastestElsewhere, fastest_elsewhere
from longca.recommend.matching import Near, SeveralDevices, refuse_several_devices, sorted_out
from longca.recommend.memory import NOT_COUNTED, TOO_LARGE, least_memory, needed_gib, within_memory
from longca.recommend.nearest import Nearest, nearest
from longca.recommend.pairs import fastest_pair, joined
from longca.recommend.planning import Plans
from longca.recommend.question import Question
from longca.recommend.same_mask import plainer
from longca.recommend.shipped import shipped
from longca.recommend.simulated import other_documents, simulated_questions
from longca.recommend.unmeasured import case_of, measured_mask, refusal_of_one_pass, unmeasured
from longca.results.files import results_file
from longca.results.metrics import median
from longca.results.naming import Row, cluster_name, rows
from longca.results.problem import Pass
from longca.results.ranking import NOT_MEASURED, PRACTICAL, Entry, Figure, Out, Ranking, Standing, entries, rank
from longca.results.reading import Results
from longca.results.record import Environment, Masks, Record, Status
from longca.results.reproduce import command
from longca.results.tables import speed_unit
from longca.results.versions import is_older

SHORTEST_POWERED_MS = 1.0  # the power readings beside a shorter call cover more than the call


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A record that an answer rests on, with its file and the machine it was measured on."""

    record: Record
    file: Path
    environment: Environment
    masks: Masks

    def __repr__(self) -> str:
        record = self.record
        return f"Source({str(self.file)!r}, key={record.key!r}, pass={record.problem.pass_.value!r}, seed={record.problem.seed!r})"

    def command(self, seeds: Sequence[int] = ()) -> str:
        """The command that measures the record again, or all that differ from it in their seed."""
        return command(self.record, self.environment, self.masks, seeds)

    def to_json(self) -> dict[str, Any]:
        record, environment = self.record, self.environment
        return {
            "file": str(self.file), "device": environment.name, "date": environment.date, "commit": environment.commit,
            "longca": environment.longca, "key": record.key, "pass": record.problem.pass_, "seed": record.problem.seed, "mask_digest": record.built.digest,
            "simulated": record.simulated, "noisy": record.noisy, "older": is_older(record), "command": self.command(),
        }  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One way to compute the attention that was asked for, and the records it rests on."""

    name: str  # fa4:bands; on many GPUs usp 8x8 fa4:bands
    kernel: str
    method: str | None
    grid: str | None
    options: str | None
    tflops: float  # per GPU, the median over the masks of several seeds
    worst_tflops: float  # of any of the masks
    highest_tflops: float
    ms: float  # the median too
    ms_over_masks: tuple[float, float]  # the least and the most: documents of other seeds have more or fewer visible pairs
    ms_range: tuple[float, float] | None  # of a nearest answer, where its error is known: it holds nine of ten such times
    memory_gib: float | None  # per GPU, inputs included; None: not counted
    plan_ms: float | None  # of one plan, the median over the masks; `ms` holds its part where the question counts planning
    plans_of: tuple[str, ...]  # heads and lengths of the records that `plan_ms` is of, where these are others
    joules: float | None  # of one call on one GPU: measured, or power times time
    against_best: float  # this speed over the best one's
    as_good: bool  # not the best, but within the noise of it, or so close that it does not matter
    noisy: bool
    samples: int  # of the record that has the fewest
    older: bool  # a record is of an older version of the kernel's code
    summed: bool  # forward and backward were measured apart
    simulated: str | None  # the cluster it was simulated for
    sources: tuple[Source, ...]
    other_sources: tuple[Source, ...]  # records of another shape or mask that a nearest answer was interpolated with

    def command(self, seeds: Sequence[int], others: Sequence[str] = ()) -> str:
        """The command that measures it again, with other kernels: this variant, also where its record asked for the kernel's own choice."""
        source = self.sources[0]
        try:
            registry.get(self.kernel)
        except LongcaError:  # of a plugin that is not here: as it was typed then
            return source.command(seeds)
        return replace(source, record=replace_fields(source.record, asked=",".join((self.kernel, *others)))).command(seeds)

    def to_json(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in ("sources", "other_sources")}
        return values | {
            "records": [source.to_json() for source in self.sources],
            "other_records": [source.to_json() for source in self.other_sources],
        }


@dataclass(frozen=True)
class Pair(Choice):
    """The forward of one kernel with the backward of another. `kernel` is `best`, which combines them; `against_best` is over 1."""

    forward: str
    backward: str
    forward_ms: float
    backward_ms: float

    def command(self, seeds: Sequence[int], others: Sequence[str] = ()) -> str:
        """The command that measures both kernels again, with other kernels. A forward alone may be of inference: both passes make it one of
        training."""
        source, kernels = self.sources[0], ",".join((self.forward, self.backward, *others))
        both = replace_fields(source.record, asked=kernels, given=replace_fields(source.record.given, grad=True))
        return replace(source, record=both).command(seeds)


@dataclass(frozen=True)
class Answer:
    """What the records say about a question; `choices` are empty where they say nothing."""

    question: Question
    device: str
    seeds: tuple[int, ...]
    choices: tuple[Choice, ...]  # the fastest first
    out: tuple[Out, ...]  # what was measured and cannot be recommended
    unmeasured: tuple[str, ...]  # kernels that LongCA knows and of which there is no record
    advice: tuple[str, ...]  # what to run, where no record answers
    nearest: Nearest | None = None  # what the figures were scaled from; None where records answer exactly
    by_calls: tuple[Step, ...] = ()  # the best by the calls that share a plan; empty where the question says how often planning counts
    pair: Pair | None = None  # faster than the best kernel by what matters
    same_as: str | None = None  # a mask without parameters that shows the same pairs at this length, whose records answer
    elsewhere: FastestElsewhere | None = None  # kernels that are not compared, and are the fastest at another length
    remarks: tuple[str, ...] = ()  # sentences of the caller on the question
    more_seeds: Answer | None = None  # where this one is of one seed's documents: that of other heads, of which more seeds were measured

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    @property
    def ways(self) -> tuple[Choice, ...]:
        """The pair, where there is one, and the choices: the fastest first."""
        return self.choices if self.pair is None else (self.pair, *self.choices)

    @property
    def unit(self) -> str:
        """What shares a sequence."""
        return "rank" if self.best and self.best.sources[0].environment.on_cpu else "GPU"

    @property
    def masks(self) -> int:
        """How many different masks the figures are of: seeds that draw nothing give one, and a nearest answer may rest on two lengths."""
        records = [source.record for source in self.best.sources] if self.best else []
        return len({record.built.digest for record in records if record.problem.seqlen == records[0].problem.seqlen})

    def to_json(self) -> dict[str, Any]:
        choices = [choice.to_json() for choice in self.choices]
        return {
            "question": self.question.to_json(),
            "device": self.device,
            "seeds": list(self.seeds),
            "best": choices[0] if choices else None,
            "runners_up": choices[1:],
            "out": [{"name": out.line, "status": out.status, "reason": out.reason} for out in self.out],
            "not_measured": list(self.unmeasured),
            "advice": list(self.advice),
            "nearest": self.nearest.to_json() if self.nearest else None,
            "new_mask_every_call": self.by_calls[0].name if self.by_calls else None,
            "by_calls_per_plan": [step._asdict() for step in self.by_calls],
            "pair": self.pair.to_json() if self.pair else None,
            "same_as": self.same_as,
            "fastest_elsewhere": self.elsewhere.to_json() if self.elsewhere else None,
            "remarks": list(self.remarks),
        }


def recommend(question: Question, results: Results) -> Answer:
    """The answer of the records, or else the nearest one; without either `choices` are empty and `advice` says what to run."""
    answering, others = sorted_out(question, results)
    matching = [one.record for one in answering]
    plain = None if matching else plainer(question)
    if plain and (found := recommend(plain, results)).choices:
        return replace(found, question=question, same_as=plain.mask, elsewhere=None)  # that is of the plain mask
    drawn = simulated_questions(question, others) if question.cluster and not matching and not question.exact else []
    if len(drawn) == 1 and (found := recommend(drawn[0], results)).choices:
        return replace(found, remarks=(other_documents(question, drawn[0]),))
    refuse_several_devices(answering, "answer this")
    near = None if matching or question.exact else nearest(question, others, results)
    named = rows(replace(results, records=matching))
    measured = list(near.entries) if near else entries(named, question.pass_)
    used = list(near.records) if near else matching
    machines = [results.environment(record) for record in used]
    device = "cpu" if machines and all(machine.on_cpu for machine in machines) else "cuda"
    asked = _Asked(question, results, Plans(results), near)
    ranking = rank(asked.competing(entry) for entry in measured)
    choices = tuple(_choice(standing, asked, place) for place, standing in enumerate(ranking.standings))
    parts = near.parts if near else _parts(named, question)
    pair = _pair(parts, ranking, asked, device)
    compared = {entry.line for entry in measured} if near else {name for record in used for name in (record.label, record.asked)}
    return Answer(
        question,
        device=machines[0].name if machines else "",
        seeds=tuple(sorted({source.record.problem.seed for choice in choices[:1] for source in choice.sources})),
        choices=choices,
        out=_with_refusals(ranking.out, measured, question, device),
        unmeasured=unmeasured(question, used, device),
        advice=tuple(_advice(ranking, measured, others, machines, asked)),
        nearest=near,
        by_calls=_by_calls(measured, parts, asked, device),
        pair=pair,
        elsewhere=None if pair else _fastest_elsewhere(ranking.best, compared, answering, others, asked),
        more_seeds=_of_more_seeds(question, others, results, machines[0].name) if len(ranking.masks) == 1 and not near else None,
    )


@dataclass(frozen=True)
class _Asked:
    """The question, and what it is answered from."""

    question: Question
    results: Results
    plans: Plans
    near: Nearest | None

    def competing(self, entry: Entry) -> Entry:
        """The entry as it is compared: with planning where that counts, and out where it is too large."""
        planned = self.plans.counted(entry, self.question.calls_per_plan)
        return within_memory(planned, self.question, self.results, self.near is not None)


def _advice(
    ranking: Ranking, measured: Sequence[Entry], others: Sequence[Near], machines: Sequence[Environment], asked: _Asked
) -> list[str]:
    """What comes closest to the memory that there is, and what to run, unless records answer exactly, be it that no kernel can do it."""
    question, near = asked.question, asked.near
    large = [] if ranking.standings else [out.line for out in ranking.out if out.status == TOO_LARGE]
    memory = least_memory([entry for entry in measured if entry.line in large], question, asked.results)
    is_answer = bool(ranking.out) and not any(out.status in (NOT_MEASURED, NOT_COUNTED) for out in ranking.out)  # that no kernel can do it
    if (is_answer and not ranking.standings and (large or not near)) or (ranking.standings and not near):
        return memory
    lacking, *otherwise = _without_cluster(question, asked.results) if question.cluster else [""]
    simulated = [] if near else _simulated_commands(question, others, asked.results)
    return [*memory, *filter(None, (lacking, *advice(question, () if near else others, machines, simulated), *otherwise))]


def _simulated_commands(question: Question, others: Sequence[Near], results: Results) -> list[str]:
    """The commands that simulated records answer."""
    folders = [] if set(results.folders) <= set(shipped()) else [str(folder) for folder in results.folders]
    answered = [other for other in simulated_questions(question, others) if recommend(replace(other, exact=True), results).choices]
    return [f"{_what_answers(question, other)}: {ask_command(other, folders)}" for other in answered[:SHOWN]]


def _what_answers(question: Question, other: Question) -> str:
    is_same = (other.distribution, other.packing) == (question.distribution, question.packing)
    return "simulated records answer it" + ("" if is_same else " with other documents")


def _fastest_elsewhere(
    best: Standing | None, compared: set[str], answering: Sequence[Near], others: Sequence[Near], asked: _Asked
) -> FastestElsewhere | None:
    if best is None or asked.question.gpus > 1:
        return None
    used = next((near for near in [*answering, *others] if near.record is best.records[0]), None)
    if used is None:  # of another mask, with which a nearest answer was interpolated
        return None
    return fastest_elsewhere(asked.question, best.line, compared, others, asked.results, used, asked.competing)


def _of_more_seeds(question: Question, others: Sequence[Near], results: Results, device: str) -> Answer | None:
    """The answer of the heads with the most seeds on this device, where these are several: documents change speeds more than heads do."""
    if not question.has_documents or question.exact:
        return None
    digests: dict[tuple[int, int, int, int], set[str]] = {}
    for near in others:
        record = near.record
        if record.ok and near.environment.name == device and near.differences.keys() <= {"--heads", "--head-dim"}:
            digests.setdefault(
                (record.problem.heads_q, record.problem.heads_kv, record.problem.head_dim, record.problem.head_dim_v), set()
            ).add(record.built.digest)
    if not digests:
        return None
    q, kv, dim, dim_v = max(digests, key=lambda shape: len(digests[shape]))
    asked = replace(question, heads_q=q, heads_kv=kv, head_dim=dim, head_dim_v=dim_v, device=device, exact=True)
    found = recommend(asked, results)
    return found if found.masks > 1 else None


def _with_refusals(outs: Sequence[Out], measured: Sequence[Entry], question: Question, device: str) -> tuple[Out, ...]:
    """The excluded kernels; one that has no record of a pass because it refuses that pass is unsupported, for its own reason."""
    lacking = {entry.line for entry in measured if entry.out and entry.out.status == NOT_MEASURED}
    reasons = {line: refusal_of_one_pass(line, question, device) for line in lacking if question.gpus == 1}
    return tuple(
        Out(out.line, Status.UNSUPPORTED.value, f"{out.reason}: it {reason}") if (reason := reasons.get(out.line)) else out for out in outs
    )


def _parts(named: Sequence[Row], question: Question) -> tuple[Sequence[Entry], ...]:
    """The measured forwards and backwards, where both are asked for."""
    return tuple(entries(named, part, Pass.BOTH) for part in Pass.BOTH.parts) if question.pass_ is Pass.BOTH else ()


def _pair(parts: Sequence[Sequence[Entry]], ranking: Ranking, asked: _Asked, device: str) -> Pair | None:
    """The fastest forward and backward of two kernels, where they are faster than the best kernel by what matters.

    A deterministic call has none: there `best` does not choose by time.
    """
    single, question, near = ranking.best, asked.question, asked.near
    if single is None or not parts or question.gpus > 1 or question.cluster or question.deterministic:
        return None
    forwards, backwards = ([asked.competing(entry) for entry in own] for own in parts)
    mask = near.mask if near else measured_mask(single.records[0], asked.results, question)
    fastest = fastest_pair(forwards, backwards, ranking.masks, mask, case_of(question, mask, device))
    if fastest is None:
        return None
    both = joined(*fastest, ranking.masks)
    first, second = rank([both, Entry(single.line, single.figures)]).standings
    # ranges of predictions nearly always overlap, since one change of length moves the times of all kernels: there only times decide
    if first.line != both.line or 1 / second.against_best - 1 <= PRACTICAL or (second.equal and not near):
        return None
    forward_ms, backward_ms = (median([entry.figures[digest].ms for digest in ranking.masks]) for entry in fastest)
    return Pair(
        **vars(_choice(first, asked, 0)) | {"kernel": Best.name, "against_best": 1 / second.against_best},
        forward=fastest[0].line,
        backward=fastest[1].line,
        forward_ms=forward_ms,
        backward_ms=backward_ms,
    )


def _by_calls(measured: Sequence[Entry], parts: Sequence[Sequence[Entry]], asked: _Asked, device: str) -> tuple[Step, ...]:
    """The best of masks with documents, which are new again and again, by the calls that share a plan."""
    if not asked.question.has_documents or asked.question.calls_per_plan is not None:
        return ()

    @cache
    def best_at(calls: int) -> Leader | None:
        planned = replace(asked, question=replace(asked.question, calls_per_plan=calls))
        ranking = rank(planned.competing(entry) for entry in measured)
        if ranking.best is None:
            return None
        if pair := _pair(parts, ranking, planned, device):
            return Leader(pair.name, pair.ms, frozenset({pair.name}))
        return Leader(ranking.best.line, ranking.best.ms, frozenset(standing.line for standing in ranking.equals))

    return steps_of(best_at)


def _joules(figure: Figure, asked: _Asked) -> float | None:
    """The energy of one call without its planning: as measured, or the power beside the samples times the time.

    None for a short call without a measured energy.
    """
    calls = asked.question.calls_per_plan
    ms = figure.ms - (asked.plans.ms(figure) or 0.0) / calls if calls else figure.ms
    energies = [record.joules or (_power_times_time(record) if ms >= SHORTEST_POWERED_MS else None) for record in figure.records]
    known = [energy for energy in energies if energy]
    if len(known) < len(energies):
        return None
    return ms * sum(known) / sum(record.times.median for record in figure.records)


def _power_times_time(record: Record) -> float | None:
    ms = record.times.median
    return None if record.watts is None or ms < SHORTEST_POWERED_MS else record.watts * ms / 1e3


def _median(values: Sequence[float | None]) -> float | None:
    """The median, where every value is known."""
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None


def _choice(standing: Standing, asked: _Asked, place: int) -> Choice:
    records, figures, near = standing.records, [*standing.figures.values()], asked.near
    first = records[0]
    name = standing.line.removesuffix(f", simulated on {first.simulated}")
    return Choice(
        name=name,
        kernel=name.rsplit(" ", 1)[-1],
        method=first.method,
        grid=first.grid,
        options=first.options,
        tflops=standing.tflops,
        worst_tflops=standing.over.speeds[0],
        highest_tflops=standing.over.speeds[1],
        ms=standing.ms,
        ms_over_masks=standing.over.times,
        ms_range=(median(one.p20 for one in figures), median(one.p80 for one in figures)) if near and not near.unknown else None,
        memory_gib=needed_gib(figures, asked.question),
        plan_ms=_median([asked.plans.ms(figure) for figure in figures]),
        plans_of=asked.plans.others(figures),
        joules=_median([_joules(figure, asked) for figure in figures]),
        against_best=standing.against_best,
        as_good=standing.equal and place > 0,
        noisy=standing.noisy,
        samples=standing.samples,
        older=any(map(is_older, [*records, *standing.helpers])),
        summed=any(len({record.problem.pass_ for record in figure.records}) > 1 for figure in figures),
        simulated=first.simulated,
        sources=tuple(_source(record, asked.results) for record in records),
        other_sources=tuple(_source(record, asked.results) for record in standing.helpers),
    )


def _source(record: Record, results: Results) -> Source:
    home = results.folders[results.homes[record.key][-1]]
    return Source(record, results_file(home), results.environment(record), results.masks)


def _without_cluster(question: Question, results: Results) -> list[str]:
    """What to say where no record was simulated for the cluster."""
    clusters = sorted({record.simulated for record in results.records if record.simulated})
    available = f"simulated records have {', '.join(clusters)}" if clusters else "no record here is a simulated one"
    lacking = f"there is no simulated record of this for the cluster {question.cluster}"
    lacking += "." if cluster_name(question.cluster or "") in clusters else f"; {available}."
    simulation = simulate_command(question)
    simulating = [f"to simulate it: {simulation}", f"then: {ask_command(question)}"] if simulation else []
    try:
        measured = recommend(replace(question, cluster=None, exact=True), results)
    except SeveralDevices as error:
        return [lacking, *simulating, f"without --cluster {error}"]
    best = measured.best
    if best is None:
        return [lacking, *simulating, "without --cluster no measured record answers, either."]
    unit = speed_unit([best.tflops])
    speed = f"{unit.text(best.tflops)} {unit.name}{f' per {measured.unit}' if best.method else ''}, {best.ms:.4g} ms"
    return [lacking, *simulating, f"without --cluster measured records say: use {best.name} ({speed})."]
