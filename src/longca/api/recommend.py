"""`longca.recommend` and `longca.best`: which kernel, or which method on many GPUs, to use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from longca.api.journals import folders_of
from longca.api.model_window import model_note
from longca.api.takes import takes
from longca.bench.plan.request import MaskSettings, document_lengths, texts
from longca.bench.plan.workload import model as find_model
from longca.errors import BadInput
from longca.lengths import read_lengths
from longca.recommend import rank, shipped, usage, words
from longca.recommend.answer import Answer, Choice, Pair
from longca.recommend.question import Question, parse_fields
from longca.recommend.rank import NoRecord, table
from longca.results.reading import Results
from longca.results.shown import Part, Shown

ROW = ("name", "kernel", "method", "tflops", "ms", "ms_over_masks", "ms_range", "memory_gib", "plan_ms", "joules")
OF_MODELS = ("heads", "head_dim", "softcap", "sinks", "scale")


class Recommendation(Shown):
    """An answer from records, or from a simulation, which has words of its own."""

    def __init__(self, answer: Answer, simulated: Sequence[Part] | None = None) -> None:
        self.answer, self._simulated = answer, simulated

    @property
    def ok(self) -> bool:
        """Whether anything is recommended."""
        return self.answer.best is not None

    @property
    def best(self) -> Choice | None:
        """The best single kernel."""
        return self.answer.best

    @property
    def pair(self) -> Pair | None:
        """The forward and the backward of two kernels that are together faster than the best one; None where no two are."""
        return self.answer.pair

    @property
    def code(self) -> str:
        """The lines of Python that use the answer, the pair before the best kernel; empty where there is none."""
        return usage.code(self.answer, self.answer.ways[0]) if self.answer.ways else ""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per single kernel, the best first."""
        return [{name: getattr(choice, name) for name in (*ROW, "against_best", "as_good", "noisy")} for choice in self.answer.choices]

    def parts(self, details: bool = False) -> list[Part]:
        return words.parts(self.answer, details) if self._simulated is None else words.simulated(self.answer, self._simulated)


@dataclass(frozen=True)
class RecommendRequest(MaskSettings):
    """A question, and the results that answer it. What is None has its default, or the model's."""

    mask: str
    seqlen: int | str
    heads: str | int | Sequence[int] | None = None
    head_dim: int | str | None = None
    dtype: str = "bf16"
    _: KW_ONLY
    pass_: str = "fwd+bwd"
    gpus: int = 1
    cluster: str | None = None
    memory: str | None = None
    device: str = ""
    source: str = "random"
    own_documents: bool = False
    deterministic: bool = False
    softcap: float | None = None
    sinks: bool | None = None
    scale: float | None = None
    model: str | None = None
    calls_per_plan: int | None = None
    exact: bool = False
    results: str | Path | Sequence[str | Path] | None = None


@takes(RecommendRequest)
def recommend(request: RecommendRequest) -> Recommendation:
    """Returns which kernel to use (on many GPUs: method, grid and kernel), from LongCA's records or those in `results`.

    `heads`, `head_dim`, `softcap`, `sinks`, `scale` and the window default to those of `model`, or else to 64:8 heads of 128. `documents`
    are the lengths of your documents, or a file with them, and `params` are parameters of the mask, such as {"w": 512}. If no record
    matches, the choice is scaled from the nearest records, and its `ms_range` is set if the error is known; `exact` excludes such choices.
    With a `cluster`, `gpus` are simulated, as `longca.simulate(best=True)` does it, and no records answer.

    >>> longca.recommend("causal_document", "32K").best.kernel
    """
    return _recommendation(request)


@takes(RecommendRequest)
def best(request: RecommendRequest) -> Choice:
    """Returns the best single kernel (on many GPUs: method, grid and kernel), or raises LongcaError. The arguments are those of
    `longca.recommend`.

    >>> longca.best("causal_document", "32K", "64:8").kernel
    """
    recommendation = _recommendation(request)
    if recommendation.best is None:
        raise NoRecord(str(recommendation))
    return recommendation.best


def _recommendation(request: RecommendRequest) -> Recommendation:
    """For a cluster a simulation on the documents of all verbs, else the records."""
    question = Question.parse(**_typed(vars(request)))
    if request.cluster is None:
        return Recommendation(_answer(request, question))
    _refuse_what_no_simulation_answers(question, request)
    from longca.api.simulated_answers import simulated_answer  # it needs torch

    return Recommendation(*simulated_answer(question, request.cluster, request.model))


def _refuse_what_no_simulation_answers(question: Question, request: RecommendRequest) -> None:
    problem = question.problem
    if problem.ranks < 2:
        raise BadInput("--cluster simulates two GPUs or more; say how many with --gpus.")
    if problem.is_pattern:
        raise BadInput("--cluster simulates no block patterns; leave it out.")
    for_records = {
        "--results": request.results,
        "--device": question.device,
        "--own-documents": question.own_documents,
        "--deterministic": problem.deterministic,
        "--calls-per-plan": question.calls_per_plan,
    }
    if given := [flag for flag, value in for_records.items() if value]:
        raise BadInput(f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for measured records; leave out that, or --cluster.")


def _answer(request: RecommendRequest, question: Question) -> Answer:
    model = find_model(request.model) if request.model else None
    results = _load(request.results)
    layers = model.layers_of(question.problem.mask) if model and _is_planned_each_step(question) else None
    answer = rank.recommend(replace(question, calls_per_plan=layers), results) if layers else None
    if answer is None or answer.best is None:
        layers, answer = None, rank.recommend(question, results)  # records may lack planning times
    note = model_note(request.model, model, question, layers, answer.seeds) if request.model and model else None
    return replace(answer, model=note)


def _is_planned_each_step(question: Question) -> bool:
    """Whether the layers of a model share a plan: documents are new at every step. On many GPUs planning is not measured."""
    return question.calls_per_plan is None and question.has_documents and question.problem.ranks == 1


def every_answer(request: RecommendRequest) -> list[Answer]:
    """Returns all answers that the records contain, if they have what the request gives; here every field may be None."""
    if request.cluster is not None:
        raise BadInput("--cluster simulates the answer to one question; give --mask and --seqlen.")
    return table(_load(request.results), parse_fields(**_typed(vars(request))))


def _load(results: str | Path | Sequence[str | Path] | None) -> Results:
    given = None if results is None else folders_of(results if isinstance(results, list | tuple) else [results])
    return shipped.load(given)


def _typed(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a user types about a question, with the shape and the window of the model where nothing else is given."""
    given = {name: value for name, value in asked.items() if value is not None and name not in ("model", "results", "cluster")}
    if "heads" in given:
        heads = given["heads"]
        (given["heads"],) = texts("heads", [tuple(heads) if isinstance(heads, list) else heads])
    if "documents" in given:
        lengths = document_lengths(given["documents"])
        given["documents"] = read_lengths(lengths) if isinstance(lengths, str) else lengths
    if asked.get("model") is None:
        return given
    model = find_model(asked["model"])
    window = model.params_of(given["mask"]) if "mask" in given else {}
    return {name: getattr(model, name) for name in OF_MODELS} | given | {"params": {**window, **given.get("params", {})}}
