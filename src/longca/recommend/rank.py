"""The answer: which kernel, or which method on many GPUs, to use. It holds facts; `words` makes sentences of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replace_fields

from longca import masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.backends.best import Best
from longca.kernels.base import Case, Kernel
from longca.kernels.choice.candidates import candidates
from longca.masks import AnyMask, Mask
from longca.recommend.commands import run_command
from longca.recommend.match import Near, Nearest, case_of, near_records, nearest, of_one_device
from longca.recommend.question import Question
from longca.results.files import results_file
from longca.results.metrics import median
from longca.results.naming import rows
from longca.results.problem import Pass
from longca.results.ranking import NOT_MEASURED, Entry, Figure, Out, Ranking, Standing, entries, rank, together
from longca.results.reading import Results
from longca.results.record import Environment, Masks, Record
from longca.results.reproduce import command
from longca.results.settings import SAMPLE_LENGTH
from longca.results.versions import is_older

NOT_COUNTED, TOO_LARGE = "not counted", "too large"  # statuses beside those of records


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
            "longca": environment.longca, "key": record.key, "pass": record.problem.pass_, "seed": record.problem.seed,
            "mask_digest": record.built.digest, "simulated": record.simulated,
            "noisy": record.noisy, "older": is_older(record), "command": self.command(),
        }  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """One way to compute the attention that was asked for, and the records it rests on."""

    name: str  # fa4:bands; on many GPUs usp 8x8 fa4:bands
    kernel: str
    method: str | None
    grid: str | None
    options: str | None
    tflops: float  # per GPU; of several masks all work over all time
    worst_tflops: float  # of any of the masks
    highest_tflops: float
    ms: float  # the mean over the masks
    ms_over_masks: tuple[float, float]  # the least and the most: documents of other seeds have more or fewer visible pairs
    ms_range: tuple[float, float] | None  # of a nearest answer, where its error is known
    memory_gib: float | None  # per GPU, inputs included; None: not counted
    plan_ms: float | None  # of one plan, the median over the masks; `ms` holds its part where the question counts planning
    joules: float | None  # of one call on one GPU, where it was measured
    against_best: float  # this speed over the best one's
    as_good: bool  # not the best, but within the noise of it, or so close that it does not matter
    noisy: bool
    samples: int  # of the record that has the fewest
    older: bool  # a record is of an older version of the kernel's code
    summed: bool  # forward and backward were measured apart
    simulated: str | None  # the cluster it was simulated for
    sources: tuple[Source, ...]  # of a nearest answer those of the nearest length

    def command(self, seeds: Sequence[int]) -> str:
        """The command that measures it again: this variant, also where its record asked for the kernel's own choice."""
        source = self.sources[0]
        try:
            registry.get(self.kernel)
        except LongcaError:  # of a plugin that is not here: as it was typed then
            return source.command(seeds)
        return replace(source, record=replace_fields(source.record, asked=self.kernel)).command(seeds)

    def to_json(self) -> dict[str, Any]:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "sources"}
        return values | {"records": [source.to_json() for source in self.sources]}


@dataclass(frozen=True)
class Pair(Choice):
    """The forward of one kernel with the backward of another. `kernel` is `best`, which combines them; `against_best` is over 1."""

    forward: str
    backward: str
    forward_ms: float
    backward_ms: float

    def command(self, seeds: Sequence[int]) -> str:
        """The command that measures both kernels again. A forward alone may be of inference: both passes make it one of training."""
        source, record = self.sources[0], self.sources[0].record
        both = replace_fields(record, asked=f"{self.forward},{self.backward}", planned_grad=True)
        return replace(source, record=both).command(seeds)


@dataclass(frozen=True)
class ModelNote:
    """What a model adds to a question: its window, and how many of its layers share a plan."""

    name: str
    layers: int
    layers_per_plan: int | None  # where documents are new at every step
    window: int | None  # of its local layers, counting the token itself
    local_layers: int
    windowed_mask: str | None  # what asks for such a layer, where the mask that is asked for has no window


@dataclass(frozen=True)
class Answer:
    """What the records say about a question; `choices` are empty where they say nothing."""

    question: Question
    device: str
    on_cpu: bool
    seeds: tuple[int, ...]
    masks: int  # how many different masks the times are of
    choices: tuple[Choice, ...]  # the fastest first
    pair: Pair | None  # faster than the best kernel by what matters
    out: tuple[Out, ...]  # what was measured and cannot be recommended
    least_gib: tuple[str, float] | None  # where all need too much memory: the kernel that needs the least
    unmeasured: tuple[str, ...]  # kernels that LongCA knows and of which there is no record
    nearest: Nearest | None  # what the times were scaled from; None where records answer exactly
    closest: tuple[Near, ...]  # where no record answers: those that differ in the fewest fields
    model: ModelNote | None = None

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    @property
    def ways(self) -> tuple[Choice, ...]:
        """The pair, where there is one, and the choices: the fastest first."""
        return self.choices if self.pair is None else (self.pair, *self.choices)

    @property
    def measure(self) -> str:
        """The command that measures what is asked for; empty where records answer, be it that no kernel can do it."""
        statuses = {out.status for out in self.out}
        if self.choices or not self.out:
            is_answered = bool(self.choices) and self.nearest is None
        else:
            is_open = self.nearest is not None or NOT_MEASURED in statuses or (NOT_COUNTED in statuses and not self.on_cpu)
            is_answered = TOO_LARGE in statuses or not is_open
        return "" if is_answered else run_command(self.question)

    def to_json(self) -> dict[str, Any]:
        choices = [choice.to_json() for choice in self.choices]
        return {
            "question": self.question.to_json(),
            "device": self.device,
            "seeds": list(self.seeds),
            "best": choices[0] if choices else None,
            "runners_up": choices[1:],
            "pair": self.pair.to_json() if self.pair else None,
            "out": [{"name": out.line, "status": out.status, "reason": out.reason} for out in self.out],
            "not_measured": list(self.unmeasured),
            "nearest": self.nearest.to_json() if self.nearest else None,
            "measure": self.measure or None,
            "model": vars(self.model) if self.model else None,
        }


def recommend(question: Question, results: Results) -> Answer:
    """The answer of the records, or else the nearest one; without either `choices` are empty."""
    found = near_records(question, results)
    exact = of_one_device(question, [near for near in found if not near.differences], "answer this")
    near = None if exact or question.exact else nearest(question, found, results)
    used = near.used if near else exact
    named = rows(replace(results, records=[one.record for one in exact]))
    is_both = question.pass_ is Pass.BOTH
    parts = near.parts if near else [entries(named, part, Pass.BOTH) for part in Pass.BOTH.parts] if is_both else []
    environment = used[0].environment if used else Environment()
    context = _Context(question, results, environment, near)
    measured = near.entries if near else entries(named, question.pass_)
    ranking = rank(context.competing(entry) for entry in measured)
    choices = tuple(context.choice(standing, place) for place, standing in enumerate(ranking.standings))
    fewest = min((len(one.differences) for one in found), default=0)
    return Answer(
        question,
        device=environment.name if used else "",
        on_cpu=bool(used) and environment.on_cpu,
        seeds=tuple(sorted({source.record.problem.seed for choice in choices[:1] for source in choice.sources})),
        masks=len(ranking.masks),
        choices=choices,
        pair=_pair(parts, ranking, context),
        out=ranking.out,
        least_gib=None if choices else context.least_gib(measured, ranking.out),
        unmeasured=_unmeasured(question, [one.record for one in used], context.device),
        nearest=near,
        closest=() if used else tuple(one for one in found if len(one.differences) == fewest),
    )


@dataclass(frozen=True)
class _Context:
    """The question, and what it is answered from."""

    question: Question
    results: Results
    environment: Environment
    near: Nearest | None

    @property
    def device(self) -> str:
        return "cpu" if self.environment.on_cpu else "cuda"

    def competing(self, entry: Entry) -> Entry:
        """The entry as it is compared: with planning where that counts, and out where it is too large."""
        return self._within_memory(_with_planning(entry, self.question.calls_per_plan))

    def needed_gib(self, figures: Iterable[Figure]) -> float | None:
        """The most memory of any mask, with the inputs; that of a rank includes its tokens already."""
        own = list(figures)
        peaks = [figure.peak_gib for figure in own if figure.peak_gib is not None]
        if not peaks or len(peaks) < len(own):
            return None
        return max(peaks) + (0.0 if own[0].records[0].method else self.question.input_gib)

    def _within_memory(self, entry: Entry) -> Entry:
        """The entry, out if it needs more memory than the device has, or than the user has."""
        asked, device = self.question.memory_gib, self.environment.memory_gib
        limits = [(gib, owner) for gib, owner in ((asked, "asked for"), (device, f"of the {self.environment.name}")) if gib is not None]
        need = None if entry.out else self.needed_gib(entry.figures.values())
        if entry.out or not limits or (need is None and asked is None):
            return entry
        if need is None:
            why = "memory is counted on GPUs only" if self.environment.on_cpu else "its memory was not counted"
            return entry.without(NOT_COUNTED, f"{why}, so --memory cannot be answered")
        limit, owner = min(limits)
        if need <= limit:
            return entry
        takes = "would take about" if self.near else "takes"
        return entry.without(TOO_LARGE, f"it {takes} {need:.3g} GiB with its inputs, over the {limit:.3g} GiB {owner}")

    def least_gib(self, measured: Iterable[Entry], outs: Iterable[Out]) -> tuple[str, float] | None:
        large = {out.line for out in outs if out.status == TOO_LARGE}
        needs = [(self.needed_gib(entry.figures.values()) or 0.0, entry.line) for entry in measured if entry.line in large]
        return (min(needs)[1], min(needs)[0]) if needs else None

    def choice(self, standing: Standing, place: int) -> Choice:
        records, figures, first = standing.records, [*standing.figures.values()], standing.records[0]
        spread = self.near.spread if self.near else None
        plans = [_plan_ms(figure) for figure in figures]
        joules = [record.energy.joules if record.energy else None for record in records]
        return Choice(
            name=standing.line.removesuffix(f", simulated on {first.simulated}"),
            kernel=first.label,
            method=first.method,
            grid=first.split.grid if first.split else None,
            options=first.split.options or None if first.split else None,
            tflops=standing.tflops,
            worst_tflops=standing.over.speeds[0],
            highest_tflops=standing.over.speeds[1],
            ms=standing.ms,
            ms_over_masks=standing.over.times,
            ms_range=None if spread is None else ((1 - spread) * standing.ms, (1 + spread) * standing.ms),
            memory_gib=self.needed_gib(figures),
            plan_ms=None if None in plans else median(plan for plan in plans if plan is not None),
            joules=None if self.near or None in joules else sum(joule for joule in joules if joule) / len(figures),
            against_best=standing.against_best,
            as_good=standing.equal and place > 0,
            noisy=standing.noisy,
            samples=standing.samples,
            older=any(map(is_older, records)),
            summed=any(len({record.problem.pass_ for record in figure.records}) > 1 for figure in figures),
            simulated=first.simulated,
            sources=tuple(self._source(record) for record in records),
        )

    def _source(self, record: Record) -> Source:
        home = self.results.folders[self.results.homes[record.key][-1]]
        return Source(record, results_file(home), self.results.environment(record), self.results.masks)


def _plan_ms(figure: Figure) -> float | None:
    """The time of the plan, which serves both passes of a kernel; that of both plans where there are two kernels."""
    plans: dict[str, float] = {}
    for record in figure.records:
        if record.plan_ms is None:
            return None
        plans[record.label] = max(plans.get(record.label, 0.0), record.plan_ms)
    return sum(plans.values())


def _with_planning(entry: Entry, calls_per_plan: int | None) -> Entry:
    """The entry with the planning's part in every time; out if its planning was not timed."""
    if calls_per_plan is None or entry.out:
        return entry
    figures = {}
    for digest, figure in entry.figures.items():
        plan_ms = _plan_ms(figure)
        if plan_ms is None:
            return entry.without(NOT_MEASURED, "its planning was not timed, so --calls-per-plan cannot be answered")
        more = plan_ms / calls_per_plan
        speed = figure.tflops * figure.ms / (figure.ms + more)
        times = {"ms": figure.ms + more, "p20": figure.p20 + more, "p80": figure.p80 + more}
        figures[digest] = replace_fields(figure, **times, tflops=speed, mfu=figure.mfu and figure.mfu * speed / figure.tflops)
    return replace_fields(entry, figures=figures)


def _pair(parts: Sequence[Sequence[Entry]], ranking: Ranking, context: _Context) -> Pair | None:
    """The fastest forward and backward of two kernels, where they are faster than the best kernel by what matters.

    A deterministic call has none: there `best` does not choose by time.
    """
    single, question = ranking.best, context.question
    if single is None or not parts or question.gpus > 1 or question.cluster or question.deterministic:
        return None
    forwards, backwards = ([context.competing(entry) for entry in own] for own in parts)
    mask = context.near.mask if context.near else _measured_mask(single.records[0], context)
    fastest = _fastest_pair(forwards, backwards, ranking.masks, mask, case_of(question, mask, context.device))
    if fastest is None:
        return None
    forward, backward = fastest
    both = _joined(forward, backward, ranking.masks)
    first, second = rank([both, Entry(single.line, single.figures)]).standings
    if first.line != both.line or second.equal:
        return None
    times = [sum(entry.figures[digest].ms for digest in ranking.masks) / len(ranking.masks) for entry in fastest]
    values = vars(context.choice(first, 0)) | {"kernel": Best.name, "against_best": 1 / second.against_best}
    return Pair(**values, forward=forward.line, backward=backward.line, forward_ms=times[0], backward_ms=times[1])


def _fastest_pair(
    forwards: Iterable[Entry], backwards: Iterable[Entry], digests: Collection[str], mask: AnyMask, case: Case
) -> tuple[Entry, Entry] | None:
    """The forward and the backward that together are the fastest on masks with these digests, of which `mask` is an example; None where
    one kernel has both. Both have the same memory order: otherwise `best` copies tensors between them, and the sum lacks that."""
    ahead, behind = (
        {entry.line: entry for entry in own if not entry.out and entry.figures.keys() >= set(digests)} for own in (forwards, backwards)
    )
    able = candidates(mask, case, available=lambda kernel: kernel.label in ahead or kernel.label in behind)
    first = [kernel for kernel in able.forward if kernel.label in ahead]
    second = [kernel for kernel in able.backward if kernel.label in behind]
    ways = [(one, other) for one, other in product(first, second) if one.layout == other.layout]
    if not ways:
        return None
    pairs = [(ahead[one.label], behind[other.label]) for one, other in ways]
    forward, backward = min(pairs, key=lambda pair: sum(entry.figures[digest].ms for entry in pair for digest in digests))
    return (forward, backward) if forward.line != backward.line else None


def _joined(forward: Entry, backward: Entry, digests: Iterable[str]) -> Entry:
    """The two as one entry."""
    figures = {digest: together([forward.figures[digest], backward.figures[digest]]) for digest in digests}
    return Entry(f"{forward.line} + {backward.line}", figures)


def _unmeasured(question: Question, used: Sequence[Record], device: str) -> tuple[str, ...]:
    """Kernels on one GPU, methods on many, that take such a mask in such a shape, and of which there is no record."""
    sample = _sample_mask(question)
    case = case_of(question, sample, device)
    if question.gpus > 1:
        from longca.parallel import registry as methods

        others = [methods.get(name) for name in sorted(set(methods.names()) - {record.method for record in used})]
        gpus = question.gpus
        return tuple(method.name for method in others if method.supports(sample, case, gpus, method.default_grid(case, gpus)))
    names = sorted(set(registry.compared_names()) - {record.kernel for record in used})
    return tuple(name for name in names if any(_takes(kernel, sample, case) for kernel in registry.choices(name)))


def _takes(kernel: Kernel, mask: AnyMask, case: Case) -> bool:
    return case.device in kernel.devices and bool(registry.supports(kernel, mask, case))


def _measured_mask(record: Record, context: _Context) -> AnyMask:
    """The mask of a record; a sample where it is a block pattern, or its journal does not have it."""
    entry = context.results.masks.get((record.built.digest, record.problem.mask))
    if entry is None or entry.bands is None:
        return _sample_mask(context.question)
    return Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands, documents=entry.documents)


def _sample_mask(question: Question) -> AnyMask:
    """A mask like the one asked for, but shorter, to ask kernels whether they take it. A window or a block of the size asked for still
    hides something in it, and the block at its end is as short."""
    if isinstance(masks.find(question.mask), masks.MaskFile):
        return question.build(0)
    unit = max([SAMPLE_LENGTH, *(int(value) for value in question.params.values())])
    seqlen = min(question.seqlen, 2 * unit + question.seqlen % unit)
    chosen = question.mask if question.source == "random" else f"{question.mask} & {masks.dense_of(question.source)}"  # as q and k select
    return replace(question, mask=chosen, source="random", seqlen=seqlen, distribution=None, packing=None).build(0)
