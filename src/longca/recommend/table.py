"""Recommendations for other programs: the table of all that the records can answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from longca import masks
from longca.errors import LongcaError
from longca.recommend import shipped
from longca.recommend.answer import Answer
from longca.recommend.match import is_device, is_single_rank, other_params
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.results.naming import cluster_name
from longca.results.points import grouped
from longca.results.problem import Pass
from longca.results.reading import Results

DRAWN = "drawn"  # stands for a parameter that each mask draws from its seed
NO_RECORD = 4  # the exit code where no record answers


class NoRecord(LongcaError):
    """No record answers; the message says which run would."""

    exit_code = NO_RECORD


def table(results: Results, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
    """An answer for every mask, length, shape, pass and number of GPUs that the records hold, if it has the `wanted` fields of a question.
    `memory_gib` limits all of them; records of any `scale` answer."""
    filters = dict(wanted or {})
    _check_filters(filters)
    memory, device, scale = filters.pop("memory_gib", None), filters.pop("device", ""), filters.pop("scale", 0.0)
    calls = filters.pop("calls_per_plan", None)
    filters.pop("exact", None)  # a table holds nothing else
    here = [record for record in results.records if is_device(device, results.environment(record))]
    answers = []
    for mask, records in grouped(here, attrgetter("problem.mask")).items():
        if not _is_known(mask):  # of a plugin or a file that is not here: nobody can ask for it
            continue
        group = replace(results, records=records)
        for question in dict.fromkeys(_questions(group)):
            if all(_has(question, field, value) for field, value in filters.items()):
                answers.append(recommend(replace(question, memory_gib=memory, scale=scale, calls_per_plan=calls, exact=True), group))
    return [answer for answer in answers if answer.choices or answer.out]


def _is_known(mask: str) -> bool:
    try:
        masks.find(mask)
    except LongcaError:
        return False
    return True


def exported(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Answers for readers without LongCA, or on another machine: with every parameter of the mask, defaults included, and with shipped
    journals named from the folder of results on."""
    entries = []
    for answer in answers:
        entry = answer.to_json()
        params = answer.question.all_params.items()
        entry["question"]["params"] = {name: DRAWN if callable(value) else value for name, value in params}
        for choice in filter(None, (entry["best"], *entry["runners_up"], entry["pair"])):
            choice["records"] = [record | {"file": _portable(Path(record["file"]))} for record in choice["records"]]
        entries.append(entry)
    return entries


def _portable(file: Path) -> str:
    """The path as given; that of a shipped journal without the place where LongCA is installed."""
    places = (place for place in shipped.SHIPPED if file.is_relative_to(place))
    return next((f"results/{file.relative_to(place).as_posix()}" for place in places), str(file))


def _check_filters(filters: Mapping[str, Any]) -> None:
    """Raises BadInput for fields that no question can have, or not together."""
    params = filters.get("params", {}) if "mask" in filters else {}  # without a mask: those of any
    example = Question(**{"mask": "full", "seqlen": filters.get("gpus", 1), **filters, "params": params})
    if "mask" in filters:
        example.check_together()


def _has(question: Question, field: str, value: Any) -> bool:
    if field == "cluster":
        return question.cluster == cluster_name(value)
    if field != "params":
        return bool(getattr(question, field) == value)
    params = question.all_params
    return all(name in params and params[name] == number for name, number in value.items())


def _questions(results: Results) -> Iterator[Question]:
    """The questions that these records answer, of every pass."""
    for record in results.records:
        if is_single_rank(record):
            continue
        for pass_ in Pass:
            yield Question(
                mask=record.problem.mask,
                seqlen=record.problem.seqlen,
                heads_q=record.problem.heads_q,
                heads_kv=record.problem.heads_kv,
                head_dim=record.problem.head_dim,
                head_dim_v=record.problem.head_dim_v,
                dtype=record.problem.dtype,
                pass_=pass_,
                params=other_params(record, {}),
                source=record.problem.source,
                distribution=record.problem.distribution,
                packing=record.problem.packing,
                own_documents=record.problem.documents is not None,
                deterministic=record.problem.deterministic,
                softcap=record.problem.softcap,
                sinks=record.problem.sinks,
                gpus=record.problem.ranks,
                cluster=record.simulated,
                device=results.environment(record).name,
            )
