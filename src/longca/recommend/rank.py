"""Which kernel, or which method on many GPUs, to use: candidates with their planning and memory, ranked, and pairs of two kernels; for one
question, or for all that the records answer."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from operator import attrgetter
from statistics import median
from typing import Any

from msgspec.structs import replace as replace_fields

from longca import masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.backends.best import Best
from longca.kernels.base import Case, Kernel
from longca.kernels.choice.candidates import candidates
from longca.masks import AnyMask, Mask
from longca.recommend.answer import NOT_COUNTED, TOO_LARGE, Answer, Choice, Pair, Source
from longca.recommend.match import Nearest, answers_nothing, case_of, is_device, near_records, nearest, of_one_device, other_params
from longca.recommend.question import Question, input_gib
from longca.results.files import results_file
from longca.results.grouping import grouped
from longca.results.naming import rows
from longca.results.problem import Pass
from longca.results.ranking import NOT_MEASURED, Entry, Figure, Ranking, entries, rank, together
from longca.results.reading import Results
from longca.results.record import Environment, Record
from longca.results.settings import SAMPLE_LENGTH
from longca.results.versions import is_older

NO_RECORD = 4  # the exit code where no record answers
LIMITS = ("memory_gib", "calls_per_plan")  # what applies to every answer; other fields choose among them


class NoRecord(LongcaError):
    """No record answers; the message says which run would."""

    exit_code = NO_RECORD


def recommend(question: Question, results: Results) -> Answer:
    """The answer of the records, or else the nearest one; without either `choices` are empty."""
    found = near_records(question, results)
    exact = of_one_device(question, [near for near in found if not near.differences], "answer this")
    near = None if exact or question.exact else nearest(question, found, results)
    used = near.used if near else exact
    entries_of = near.entries if near else partial(entries, rows(replace(results, records=[one.record for one in exact])))
    pass_ = question.problem.pass_
    environment = used[0].environment if used else Environment()
    context = _Context(question, results, environment, near)
    ranking = rank(context.competing(entry) for entry in entries_of(pass_, None))
    parts = [[context.competing(entry) for entry in entries_of(part, pass_)] for part in pass_.parts] if pass_ is Pass.BOTH else []
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
        return max(peaks) + (0.0 if own[0].records[0].method else input_gib(self.question.problem))

    def _within_memory(self, entry: Entry) -> Entry:
        """The entry, out if it needs more memory than the device has, or than the user has."""
        asked, device = self.question.memory_gib, self.environment.memory_gib
        limits = [(gib, owner) for gib, owner in ((asked, ""), (device, self.environment.name)) if gib is not None]
        need = None if entry.out else self.needed_gib(entry.figures.values())
        if entry.out or not limits or (need is None and asked is None):
            return entry
        if need is None:
            return entry.without(NOT_COUNTED, on_cpu=self.environment.on_cpu)
        limit, owner = min(limits)
        return entry if need <= limit else entry.without(TOO_LARGE, gib=need, limit=limit, owner=owner, scaled=self.near is not None)

    def choice(self, standing: Entry, place: int) -> Choice:
        records, figures, first = standing.records, [*standing.figures.values()], standing.records[0]
        spread = self.near.spread if self.near else None
        plans = [_plan_ms(figure) for figure in figures]
        joules = [record.energy.joules if record.energy else None for record in records]
        return Choice(
            name=standing.line,
            kernel=first.label,
            method=first.method,
            grid=first.split.grid if first.split else None,
            options=first.split.options or None if first.split else None,
            tflops=standing.tflops,
            ms=standing.ms,
            ms_over_masks=standing.times,
            ms_range=None if spread is None else ((1 - spread) * standing.ms, (1 + spread) * standing.ms),
            memory_gib=self.needed_gib(figures),
            plan_ms=None if None in plans else median(plan for plan in plans if plan is not None),
            joules=None if self.near or None in joules else sum(joule for joule in joules if joule) / len(figures),
            against_best=standing.against_best,
            as_good=standing.equal and place > 0,
            noisy=standing.noisy,
            samples=standing.samples,
            older=any(map(is_older, records)),
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
            return entry.without(NOT_MEASURED, plan_ms=None)
        more = plan_ms / calls_per_plan
        speed, samples = figure.tflops * figure.ms / (figure.ms + more), [sample + more for sample in figure.samples]
        figures[digest] = replace_fields(figure, ms=figure.ms + more, tflops=speed, mfu=None, samples=samples)
    return replace(entry, figures=figures)


def _pair(parts: Sequence[Sequence[Entry]], ranking: Ranking, context: _Context) -> Pair | None:
    """The fastest forward and backward of two kernels, where they are faster than the best kernel by what matters.

    A deterministic call has none: there `best` does not choose by time.
    """
    single, problem = ranking.best, context.question.problem
    if single is None or not parts or problem.ranks > 1 or problem.deterministic:
        return None
    mask = _mask_of(single.records[0], context)
    fastest = _fastest_pair(parts, ranking.masks, mask, case_of(problem, mask, context.device))
    if fastest is None:
        return None
    forward, backward = fastest
    figures = {digest: together([forward.figures[digest], backward.figures[digest]]) for digest in ranking.masks}
    both = Entry(f"{forward.line} + {backward.line}", figures)
    first, second = rank([both, Entry(single.line, single.figures)]).standings
    if first.line != both.line or second.equal:
        return None
    values = vars(context.choice(first, 0)) | {"kernel": Best.name, "against_best": 1 / second.against_best}
    return Pair(**values, forward=forward.line, backward=backward.line)


def _fastest_pair(passes: Iterable[Iterable[Entry]], digests: Collection[str], mask: AnyMask, case: Case) -> tuple[Entry, Entry] | None:
    """The forward and the backward that together are the fastest on masks with these digests, of which `mask` is an example; None where
    one kernel has both. Both have the same memory order: otherwise `best` copies tensors between them, and the sum lacks that."""
    ahead, behind = ({entry.line: entry for entry in own if not entry.out and entry.figures.keys() >= set(digests)} for own in passes)
    able = candidates(mask, case, available=lambda kernel: kernel.label in ahead or kernel.label in behind)
    first = [kernel for kernel in able.forward if kernel.label in ahead]
    second = [kernel for kernel in able.backward if kernel.label in behind]
    ways = [(one, other) for one, other in product(first, second) if one.layout == other.layout]
    if not ways:
        return None
    pairs = [(ahead[one.label], behind[other.label]) for one, other in ways]
    forward, backward = min(pairs, key=lambda pair: sum(entry.figures[digest].ms for entry in pair for digest in digests))
    return (forward, backward) if forward.line != backward.line else None


def _unmeasured(question: Question, used: Sequence[Record], device: str) -> tuple[str, ...]:
    """Kernels on one GPU, methods on many, that take such a mask in such a shape, and of which there is no record."""
    sample = _sample_mask(question)
    case = case_of(question.problem, sample, device)
    if question.problem.ranks > 1:
        from longca.parallel import registry as methods

        others = [methods.get(name) for name in sorted(set(methods.names()) - {record.method for record in used})]
        gpus = question.problem.ranks
        return tuple(method.name for method in others if method.supports(sample, case, gpus, method.default_grid(case, gpus)))
    names = sorted(set(registry.compared_names()) - {record.kernel for record in used})
    return tuple(name for name in names if any(_takes(kernel, sample, case) for kernel in registry.choices(name)))


def _takes(kernel: Kernel, mask: AnyMask, case: Case) -> bool:
    return case.device in kernel.devices and bool(registry.supports(kernel, mask, case))


def _mask_of(record: Record, context: _Context) -> AnyMask:
    """The mask that a record answers for; a sample where it is a measured block pattern, or its journal does not have it."""
    if context.near:
        return context.question.build(record.problem.seed)
    entry = context.results.masks.get((record.built.digest, record.problem.mask))
    if entry is None or entry.bands is None:
        return _sample_mask(context.question)
    return Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands, documents=entry.documents)


def _sample_mask(question: Question) -> AnyMask:
    """A mask like the one asked for, but shorter, to ask kernels whether they take it. A window or a block of the size asked for still
    hides something in it, and the block at its end is as short."""
    problem = question.problem
    if isinstance(masks.find(problem.mask), masks.MaskFile):
        return question.build(0)
    unit = max([SAMPLE_LENGTH, *(int(value) for _, value in problem.params)])
    seqlen = min(problem.seqlen, 2 * unit + problem.seqlen % unit)
    chosen = problem.mask if problem.source == "random" else f"{problem.mask} & {masks.dense_of(problem.source)}"  # as q and k select
    usual = {"source": "random", "documents": None, "distribution": None, "packing": None}
    return Question(replace_fields(problem, mask=chosen, seqlen=seqlen, **usual)).build(0)


def table(results: Results, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
    """An answer for every mask, length, shape, pass and number of GPUs that the records hold, if it has the `wanted` fields of a question.
    `memory_gib` limits all of them; records of any `scale` answer."""
    filters = dict(wanted or {})
    if "mask" in filters:
        Question.of({"seqlen": filters.get("ranks", 1)} | filters).check()
    limits = {name: filters.pop(name) for name in LIMITS if name in filters}
    device, scale = filters.pop("device", ""), filters.pop("scale", 0.0)
    filters.pop("exact", None)  # a table holds nothing else
    places = {record.env: results.environment(record) for record in results.records}
    wanted_places = {env for env, place in places.items() if is_device(device, place)}
    here = [record for record in results.records if record.env in wanted_places]
    answers = []
    for mask, records in grouped(here, attrgetter("problem.mask")).items():
        if not _is_known(mask):  # of a plugin or a file that is not here: nobody can ask for it
            continue
        group = replace(results, records=records)
        for question in dict.fromkeys(_questions(group, scale)):
            if all(_has(question, field, value) for field, value in filters.items()):
                answers.append(recommend(replace(question, exact=True, **limits), group))
    return [answer for answer in answers if answer.choices or answer.out]


def _is_known(mask: str) -> bool:
    try:
        masks.find(mask)
    except LongcaError:
        return False
    return True


def _has(question: Question, field: str, value: Any) -> bool:
    if field == "params":
        return dict(value).items() <= question.all_params.items()
    return bool(getattr(question if hasattr(question, field) else question.problem, field) == value)


def _questions(results: Results, scale: float) -> Iterator[Question]:
    """The questions that these records answer, of every pass."""
    for record in results.records:
        if answers_nothing(record):
            continue
        device, is_given = results.environment(record).name, record.problem.documents is not None
        params = tuple(other_params(record, {}).items())
        for pass_ in Pass:
            problem = replace_fields(record.problem, pass_=pass_, params=params, seed=0, scale=scale, documents=None)
            yield Question(problem, is_given, device=device)
