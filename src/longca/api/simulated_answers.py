"""`longca.recommend` for a cluster: the simulation that answers, as `longca.simulate(best=True)` runs it, and kept for the next time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields

import msgspec

import longca
from longca.api.simulate import SimulateRequest, find_cluster, run_simulation
from longca.bench.plan.cell import fingerprint
from longca.bench.plan.cells import mask_of
from longca.bench.plan.versions import kernel_versions, method_versions
from longca.kernels import registry as kernels
from longca.kernels.choice.records import tuned_folder
from longca.parallel import registry
from longca.recommend.answer import Answer, Choice
from longca.recommend.question import Question
from longca.results.metrics import GIB
from longca.results.shown import Part
from longca.results.tables import Table
from longca.simulate import errors
from longca.simulate.answers import Simulation
from longca.simulate.run import MODEL
from longca.text import format_dims, format_heads


@dataclass(frozen=True)
class Kept:
    """A simulation as a file keeps it."""

    choices: tuple[Choice, ...]
    packs: int
    seeds: tuple[int, ...]
    device: str
    on_cpu: bool
    parts: list[Table | str]  # what `longca simulate --best` prints


def simulated_answer(question: Question, model: str | None = None, progress: bool = True) -> tuple[Answer, list[Part]]:
    """The answer of the simulation, and its words: those of `longca simulate --best`. That of a model is for all its layers."""
    request = request_of(question, model, progress)
    file = tuned_folder().parent / "simulated" / f"{_key(request, question)}.json"
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        kept = _simulated(request)
        with suppress(OSError):  # a folder that cannot be written: simulated again the next time
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(msgspec.json.encode(kept))
    seeds = kept.seeds if question.has_documents and not question.problem.documents else ()
    return Answer(question, kept.device, kept.on_cpu, seeds, kept.packs, kept.choices, None, (), (), None, ()), kept.parts


def _simulated(request: SimulateRequest) -> Kept:
    simulation = run_simulation(request, lambda row: None)
    packs = max((contest.packs for contest in simulation.contests), default=0)
    seeds, cluster = tuple(sorted({result.cell.problem.seed for result in simulation.results})), simulation.cluster
    return Kept(tuple(choices_of(simulation)), packs, seeds, cluster.device, bool(cluster.cores), simulation.parts())


def request_of(question: Question, model: str | None, progress: bool) -> SimulateRequest:
    problem = question.problem
    given = msgspec.structs.asdict(problem)
    return SimulateRequest(
        masks=[problem.mask],
        model=model,
        gpus=problem.ranks,
        seqlens=problem.seqlen,
        heads=[format_heads(given)],
        head_dims=[format_dims(given)],
        dtypes=problem.dtype,
        passes=problem.pass_.value,
        documents=problem.documents,
        distribution=problem.distribution or None,
        packing=problem.packing or None,
        params=dict(problem.params),
        softcap=problem.softcap,
        sinks=problem.sinks,
        scale=problem.scale,
        cluster=question.cluster or "",
        constants={} if question.memory_gib is None else {"memory_gib": question.memory_gib},
        best=True,
        progress=progress,
    )


def _key(request: SimulateRequest, question: Question) -> str:
    """Another request, mask (a file of this name may hold another one), cluster, model of it, comparison with measured times, or code of
    methods is another answer."""
    asked = {field.name: str(getattr(request, field.name)) for field in fields(request) if field.name != "progress"}
    cluster = find_cluster(request.cluster, request.constants)
    kernel = kernels.default_for_methods("cpu" if cluster[1].cores else "cuda")
    methods = {name: method_versions(name) for name in registry.names()}
    mask = mask_of(msgspec.structs.replace(question.problem, seed=0)).digest
    return fingerprint(asked, mask, cluster, MODEL, errors.FILE.read_text(), longca.__version__, methods, kernel_versions(kernel))


def choices_of(simulation: Simulation) -> list[Choice]:
    """The simulated entries, the fastest first; equal within the error is as good."""
    choices = list[Choice]()
    for contest in simulation.contests:
        equals = simulation.equals(contest)
        for entry in contest.simulated:
            kernel = entry.results[0].cell.kernel
            choices.append(
                Choice(
                    name=f"{entry.name} {kernel}",
                    kernel=kernel,
                    method=entry.split.method,
                    grid=entry.split.grid,
                    options=entry.split.options or None,
                    tflops=entry.tflops,
                    ms=entry.total_ms / contest.packs,
                    ms_over_masks=(min(entry.times), max(entry.times)),
                    memory_gib=entry.peak_bytes / GIB,
                    against_best=contest.best.total_ms / entry.total_ms,
                    as_good=entry is not contest.best and entry.name in equals,
                    samples=contest.packs,
                    simulated=simulation.name,
                )
            )
    return choices
