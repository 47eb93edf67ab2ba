"""The table of all that the records can answer, for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from msgspec.structs import replace as replace_fields

from longca import masks
from longca.errors import LongcaError
from longca.recommend.answer import Answer
from longca.recommend.match import is_device, is_single_rank, other_params
from longca.recommend.question import Question
from longca.recommend.rank import recommend
from longca.results.naming import cluster_name
from longca.results.points import grouped
from longca.results.problem import Pass
from longca.results.reading import Results

NO_RECORD = 4  # the exit code where no record answers
LIMITS = ("memory_gib", "calls_per_plan")  # what applies to every answer; other fields choose among them


class NoRecord(LongcaError):
    """No record answers; the message says which run would."""

    exit_code = NO_RECORD


def table(results: Results, wanted: Mapping[str, Any] | None = None) -> list[Answer]:
    """An answer for every mask, length, shape, pass and number of GPUs that the records hold, if it has the `wanted` fields of a question.
    `memory_gib` limits all of them; records of any `scale` answer."""
    filters = dict(wanted or {})
    if "mask" in filters:
        Question.of({"seqlen": filters.get("ranks", 1)} | filters).check()
    limits = {name: filters.pop(name) for name in LIMITS if name in filters}
    device, scale = filters.pop("device", ""), filters.pop("scale", 0.0)
    filters.pop("exact", None)  # a table holds nothing else
    here = [record for record in results.records if is_device(device, results.environment(record))]
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
    if field == "cluster":
        return question.cluster == cluster_name(value)
    if field == "params":
        return dict(value).items() <= question.all_params.items()
    return bool(getattr(question if hasattr(question, field) else question.problem, field) == value)


def _questions(results: Results, scale: float) -> Iterator[Question]:
    """The questions that these records answer, of every pass."""
    for record in results.records:
        if is_single_rank(record):
            continue
        device, is_given = results.environment(record).name, record.problem.documents is not None
        params = tuple(other_params(record, {}).items())
        for pass_ in Pass:
            problem = replace_fields(record.problem, pass_=pass_, params=params, seed=0, scale=scale, documents=None)
            yield Question(problem, is_given, cluster=record.simulated, device=device)
