"""The answer: which kernel, or which method on many GPUs, to use. What no record says is not guessed: the run that would tell is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from msgspec.structs import replace as replace_fields

from longca.errors import BadInput, LongcaError
from longca.kernels import registry
from longca.recommend.advice import Near, advice, ask_command, simulate_command
from longca.recommend.matching import differences
from longca.recommend.question import Question
from longca.recommend.unmeasured import unmeasured
from longca.results.files import results_file
from longca.results.naming import rows
from longca.results.ranking import NOT_MEASURED, Entry, Figure, Out, Standing, entries, rank
from longca.results.reading import Results
from longca.results.record import Environment, Masks, Record
from longca.results.reproduce import command
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
        return f"Source({str(self.file)!r}, key={record.key!r}, pass={record.pass_.value!r}, seed={record.seed!r})"

    def command(self, seeds: Sequence[int] = ()) -> str:
        """The command that measures the record again, or all that differ from it in their seed."""
        return command(self.record, self.environment, self.masks, seeds)

    def to_json(self) -> dict[str, Any]:
        record, environment = self.record, self.environment
        return {
            "file": str(self.file), "device": environment.name, "date": environment.date, "commit": environment.commit,
            "longca": environment.longca, "key": record.key, "pass": record.pass_, "seed": record.seed, "mask_digest": record.mask_digest,
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
    worst_tflops: float
    ms: float  # the median too
    memory_gib: float | None  # per GPU, inputs included; None: not counted
    against_best: float  # this speed over the best one's
    as_good: bool  # not the best, but within the noise of it, or so close that it does not matter
    noisy: bool
    samples: int  # of the record that has the fewest
    older: bool  # a record is of an older version of the kernel's code
    summed: bool  # forward and backward were measured apart
    simulated: str | None  # the cluster it was simulated for
    sources: tuple[Source, ...]

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
class Answer:
    """What the records say about a question; `choices` are empty where they say nothing."""

    question: Question
    device: str
    seeds: tuple[int, ...]
    choices: tuple[Choice, ...]  # the fastest first
    out: tuple[Out, ...]  # what was measured and cannot be recommended
    unmeasured: tuple[str, ...]  # kernels that LongCA knows and of which there is no record
    advice: tuple[str, ...]  # what to run, where nothing can be recommended

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices else None

    @property
    def unit(self) -> str:
        """What shares a sequence."""
        return "rank" if self.best and self.best.sources[0].environment.on_cpu else "GPU"

    @property
    def masks(self) -> int:
        """How many different masks the figures are of: seeds that draw nothing give one."""
        return len({source.record.mask_digest for source in self.best.sources}) if self.best else 0

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
        }


def recommend(question: Question, results: Results) -> Answer:
    """The answer; where no record gives one, its `choices` are empty and its `advice` says what to run."""
    matching, others = _sorted_out(question, results)
    devices = sorted({results.environment(record).name for record in matching})
    if len(devices) > 1:
        raise BadInput(f"records of several devices answer this ({', '.join(devices)}); choose one with --device.")
    measured = entries(rows(replace(results, records=matching)), question.pass_)
    ranking = rank(_within_memory(entry, question, results) for entry in measured)
    choices = tuple(_choice(standing, question, results, place) for place, standing in enumerate(ranking.standings))
    seeds = sorted({source.record.seed for choice in choices[:1] for source in choice.sources})
    sentences: list[str] = []
    if not choices:
        large = {out.line for out in ranking.out if out.status == TOO_LARGE}
        sentences += _least_memory([entry for entry in measured if entry.line in large], question)
    is_answer = bool(ranking.out) and not any(out.status in (NOT_MEASURED, NOT_COUNTED) for out in ranking.out)  # that no kernel can do it
    if not choices and not is_answer:
        sentences += _without_cluster(question, results) if question.cluster else []
        sentences += advice(question, others, [results.environment(record) for record in matching])
    on_cpu = bool(matching) and all(results.environment(record).on_cpu for record in matching)
    missing = unmeasured(question, matching, "cpu" if on_cpu else "cuda")
    return Answer(question, devices[0] if devices else "", tuple(seeds), choices, ranking.out, missing, tuple(sentences))


def _sorted_out(question: Question, results: Results) -> tuple[list[Record], list[Near]]:
    """The records that answer the question, and those of the same mask that do not."""
    matching, others = list[Record](), list[Near]()
    for record in results.records:
        environment = results.environment(record)
        differing = differences(question, record, environment)
        if differing:
            others.append(Near(record, environment, differing))
        elif differing is not None:
            matching.append(record)
    named = [record for record in matching if results.environment(record).name.lower() == question.device.lower()]
    return named or matching, others  # an H200 beside an H200 NVL


def _memory_gib(figures: Sequence[Figure], question: Question) -> float | None:
    """The most memory of any mask, with the inputs; that of a rank includes its tokens already."""
    peaks = [figure.peak_gib for figure in figures]
    known = [peak for peak in peaks if peak is not None]
    if not known or len(known) < len(peaks):
        return None
    return max(known) + (0.0 if figures[0].records[0].method else question.input_gib)


def _within_memory(entry: Entry, question: Question, results: Results) -> Entry:
    """The entry, out if it needs more memory than there is."""
    if question.memory_gib is None or entry.out:
        return entry
    need = _memory_gib([*entry.figures.values()], question)
    if need is None and any(results.environment(record).on_cpu for record in entry.records):
        return entry.without(NOT_COUNTED, "memory is counted on GPUs only")
    if need is None:
        return entry.without(NOT_MEASURED, "its memory was not counted, so --memory cannot be answered")
    if need <= question.memory_gib:
        return entry
    return entry.without(TOO_LARGE, f"it takes {need:.3g} GiB with its inputs, over the {question.memory_gib:.3g} GiB asked for")


def _least_memory(too_large: Sequence[Entry], question: Question) -> list[str]:
    """What comes closest where memory is too small."""
    needs = sorted((need, entry.line) for entry in too_large if (need := _memory_gib([*entry.figures.values()], question)) is not None)
    return [f"the least of what was measured takes {need:.3g} GiB: {line}." for need, line in needs[:1]]


def _choice(standing: Standing, question: Question, results: Results, place: int) -> Choice:
    records, figures = standing.records, [*standing.figures.values()]
    first = records[0]
    name = standing.line.removesuffix(f", simulated on {first.simulated}")
    return Choice(
        name=name,
        kernel=name.rsplit(" ", 1)[-1],
        method=first.method,
        grid=first.grid,
        options=first.options,
        tflops=standing.tflops,
        worst_tflops=standing.worst_tflops,
        ms=standing.ms,
        memory_gib=_memory_gib(figures, question),
        against_best=standing.against_best,
        as_good=standing.equal and place > 0,
        noisy=standing.noisy,
        samples=standing.samples,
        older=any(map(is_older, records)),
        summed=any(len(figure.records) > 1 for figure in figures),
        simulated=first.simulated,
        sources=tuple(_source(record, results) for record in records),
    )


def _source(record: Record, results: Results) -> Source:
    home = results.folders[results.homes[record.key][-1]]
    return Source(record, results_file(home), results.environment(record), results.masks)


def _without_cluster(question: Question, results: Results) -> list[str]:
    """What to say where no record was simulated for the cluster."""
    clusters = sorted({record.simulated for record in results.records if record.simulated})
    available = f"simulated records have {', '.join(clusters)}" if clusters else "no record here is a simulated one"
    lacking = f"there is no simulated record of this for the cluster {question.cluster}"
    lacking += "." if question.cluster in clusters else f"; {available}."
    simulation = simulate_command(question)
    simulating = [f"to simulate it: {simulation}", f"then: {ask_command(question)}"] if simulation else []
    try:
        best = recommend(replace(question, cluster=None), results).best
    except BadInput as error:  # records of several devices
        return [lacking, *simulating, f"without --cluster {error}"]
    if best is None:
        return [lacking, *simulating, "without --cluster no measured record answers, either."]
    speed = f"{best.tflops:.3g} TFLOP/s{' per GPU' if best.method else ''}, {best.ms:.4g} ms"
    return [lacking, *simulating, f"without --cluster measured records say: use {best.name} ({speed})."]
