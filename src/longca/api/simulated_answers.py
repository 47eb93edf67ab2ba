"""`longca.recommend` for a cluster: the simulation that answers, as `longca.simulate(best=True)` runs it."""

from __future__ import annotations

import msgspec

from longca.api.simulate import SimulateRequest, run_simulation
from longca.recommend.answer import Answer, Choice
from longca.recommend.question import Question
from longca.results.metrics import GIB
from longca.results.shown import Part
from longca.simulate.answers import Simulation
from longca.text import format_dims, format_heads


def simulated_answer(question: Question, cluster: str, model: str | None = None) -> tuple[Answer, list[Part]]:
    """The answer of the simulation, and its words: those of `longca simulate --best`. That of a model is for all its layers."""
    simulation = run_simulation(request_of(question, cluster, model), lambda row: None)
    packs = max((contest.packs for contest in simulation.contests), default=0)
    drawn = question.has_documents and not question.problem.documents
    seeds = tuple(sorted({result.cell.problem.seed for result in simulation.results})) if drawn else ()
    machine, choices = simulation.cluster, tuple(choices_of(simulation))
    return Answer(question, machine.device, bool(machine.cores), seeds, packs, choices, None, (), (), None, ()), simulation.parts()


def request_of(question: Question, cluster: str, model: str | None) -> SimulateRequest:
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
        cluster=cluster,
        constants={} if question.memory_gib is None else {"memory_gib": question.memory_gib},
        best=True,
    )


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
