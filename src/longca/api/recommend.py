"""`longca.recommend` and `longca.best`: which kernel, or which method on many GPUs, to use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from longca.api.model_window import model_note
from longca.bench.plan.request import document_lengths
from longca.bench.plan.workload import model as find_model
from longca.lengths import read_lengths
from longca.recommend import rank, shipped, usage, words
from longca.recommend.answer import Answer, Choice, Pair
from longca.recommend.question import Question, parse_fields
from longca.recommend.table import NoRecord, table
from longca.results.naming import cluster_name
from longca.results.reading import Results
from longca.results.shown import Part, Shown
from longca.simulate import cluster as clusters

P = ParamSpec("P")
T = TypeVar("T")


class Recommendation(Shown):
    """An answer from measured records."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

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
        names = (
            *("name", "kernel", "method", "tflops", "worst_tflops", "highest_tflops", "ms", "ms_over_masks", "ms_range", "memory_gib"),
            *("plan_ms", "joules", "against_best", "as_good", "noisy", "samples"),
        )
        return [{name: getattr(choice, name) for name in names} for choice in self.answer.choices]

    def parts(self) -> list[Part]:
        return words.parts(self.answer)


@dataclass(frozen=True)
class Request:
    """A question, the results that answer it, and the model whose shape it has."""

    question: Question
    results: Results
    model: str | None


def request(
    mask: str,
    seqlen: int | str,
    heads: str | int | Sequence[int] | None = None,
    head_dim: int | str | None = None,
    dtype: str = "bf16",
    *,
    pass_: str = "fwd+bwd",
    gpus: int = 1,
    cluster: str | None = None,
    memory: str | None = None,
    device: str = "",
    source: str = "random",
    documents: str | Path | Sequence[int] | None = None,
    distribution: str | None = None,
    packing: str | None = None,
    own_documents: bool = False,
    deterministic: bool = False,
    softcap: float | None = None,
    sinks: bool | None = None,
    scale: float | None = None,
    model: str | None = None,
    calls_per_plan: int | None = None,
    exact: bool = False,
    results: str | Path | Sequence[str | Path] | None = None,
    params: Mapping[str, int | float] | None = None,
    **more_params: int | float,
) -> Request:
    """Returns what is asked. `longca.recommend` and `longca.best` have these parameters; None stands for the default, or the model's."""
    typed = {name: value for name, value in locals().items() if name not in ("model", "results", "params", "more_params")}
    question = Question.parse(**_in_shape(model, typed | {"params": {**(params or {}), **more_params}}))
    return Request(question, _load(results, question.cluster), model)


def takes(make: Callable[P, Request]) -> Callable[[Callable[[Request], T]], Callable[P, T]]:
    """Gives a function of a request the parameters that the request is made of."""

    def decorated(function: Callable[[Request], T]) -> Callable[P, T]:
        @wraps(function)
        def called(*given: P.args, **named: P.kwargs) -> T:
            bound = signature(make).bind(*given, **named)
            return function(make(*bound.args, **bound.kwargs))

        returned = signature(function).return_annotation
        called.__signature__ = signature(make).replace(return_annotation=returned)  # type: ignore[attr-defined]
        called.__annotations__ = make.__annotations__ | {"return": returned}
        return called

    return decorated


@takes(request)
def recommend(asked: Request) -> Recommendation:
    """Returns which kernel to use (on many GPUs: method, grid and kernel), from LongCA's records or those in `results`.

    `heads`, `head_dim`, `softcap`, `sinks`, `scale` and the window default to those of `model`, or else to 64:8 heads of 128. `documents`
    are the lengths of your documents, or a file with them. If no record matches, the choice is scaled from the nearest records, and its
    `ms_range` is set if the error is known; `exact` excludes such choices. Give parameters of the mask by name (w=512), or in `params` if
    an argument has that name ({"heads": 1}).

    >>> longca.recommend("causal_document", "32K").best.kernel
    """
    return Recommendation(_answer(asked))


@takes(request)
def best(asked: Request) -> Choice:
    """Returns the best single kernel (on many GPUs: method, grid and kernel), or raises LongcaError. The arguments are those of
    `longca.recommend`.

    >>> longca.best("causal_document", "32K", "64:8").kernel
    """
    answer = _answer(asked)
    if answer.best is None:
        raise NoRecord(words.no_answer(answer))
    return answer.best


def _answer(asked: Request) -> Answer:
    question, shape = asked.question, find_model(asked.model) if asked.model else None
    layers = shape.layers_of(question.mask) if shape and _is_planned_each_step(question) else None
    answer = rank.recommend(replace(question, calls_per_plan=layers), asked.results) if layers else None
    if answer is None or answer.best is None:
        layers, answer = None, rank.recommend(question, asked.results)  # records may lack planning times
    note = model_note(asked.model, shape, question, layers, answer.seeds) if asked.model and shape else None
    return replace(answer, model=note)


def _is_planned_each_step(question: Question) -> bool:
    """Whether the layers of a model share a plan: documents are new at every step. On many GPUs planning is not measured."""
    return question.calls_per_plan is None and question.has_documents and question.gpus == 1 and not question.cluster


def every_answer(model: str | None = None, results: str | Path | Sequence[str | Path] | None = None, **typed: Any) -> list[Answer]:
    """Returns all answers that the records contain, if they have what is typed: arguments of `longca.recommend`, here none is needed."""
    wanted = parse_fields(**_in_shape(model, typed))
    return table(_load(results, wanted.get("cluster")), wanted)


def _load(results: str | Path | Sequence[str | Path] | None, cluster: str | None) -> Results:
    """The records; raises BadInput where none was simulated for a cluster of this name and none could be."""
    records = shipped.load(results)
    simulated = {record.simulated for record in records.records if record.simulated}
    if cluster is not None and cluster_name(cluster) not in simulated:
        clusters.find(cluster, simulated)
    return records


def _in_shape(model: str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what is asked, with the shape and the window of a model where nothing else is given; None stands for what is not given."""
    given = {name: value for name, value in asked.items() if value is not None}
    if "documents" in given:
        lengths = document_lengths(given["documents"])
        given["documents"] = tuple(read_lengths(lengths)) if isinstance(lengths, str) else lengths
    if model is None:
        return given
    shape = find_model(model)
    usual = {name: getattr(shape, name) for name in ("heads", "head_dim", "softcap", "sinks", "scale")}
    window = shape.params_of(given["mask"]) if "mask" in given else {}
    return {**usual, **given, "params": {**window, **given.get("params", {})}}
