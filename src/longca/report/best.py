"""Recommendations for other programs: one answer, or the table of all that the records can answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from longca import masks
from longca.bench.metrics import PASSES
from longca.errors import BadInput, LongcaError
from longca.report.evidence import SHIPPED, Evidence, load
from longca.report.question import Question, check_drawing, check_together, is_device, other_params
from longca.report.recommend import Answer, Choice, recommend
from longca.text import parse_dims, parse_heads, parse_memory, parse_settings, parse_size

DRAWN = "drawn"  # a parameter that each mask draws from its seed
NO_RECORD = 4  # the exit code where no record answers


class NoRecord(LongcaError):
    """No record answers; the sentence says which run would."""

    exit_code = NO_RECORD


def best(
    mask: str,
    seqlen: int | str,
    heads: str | int | Sequence[int] = "64:8",
    head_dim: int | str = 128,
    dtype: str = "bf16",
    *,
    passes: str = "fwd+bwd",
    gpus: int = 1,
    cluster: str | None = None,
    memory: str | None = None,
    device: str = "",
    source: str = "random",
    distribution: str | None = None,
    packing: str | None = None,
    own_documents: bool = False,
    deterministic: bool = False,
    results: str | Path | Sequence[str | Path] | None = None,
    params: Mapping[str, int | float] | None = None,
    **more_params: int | float,
) -> Choice:
    """The fastest kernel (on many GPUs: method, grid and kernel) for a mask, from the shipped records or those of `results`.

    Parameters of the mask are given by name (w=512), or in `params` where the name means something else here ({"heads": 1}).

    >>> longca.best("causal_document", "32K", "64:8").kernel
    """
    for name, given in (("mask", mask), ("dtype", dtype), ("passes", passes)):
        if not isinstance(given, str):
            raise BadInput(f"{name} must be its name as a text, such as 'causal', 'bf16' or 'fwd+bwd', not {given!r}.")
    where = {"gpus": gpus, "cluster": cluster, "memory": memory, "device": device}
    which = {"source": source, "distribution": distribution, "packing": packing, "own_documents": own_documents}
    question = ask(
        mask,
        seqlen,
        heads=heads,
        head_dim=head_dim,
        dtype=dtype,
        which=passes,
        params={**(params or {}), **more_params},
        deterministic=deterministic,
        **where,
        **which,
    )
    answer = recommend(question, load([results] if isinstance(results, str | Path) else results))
    if answer.best is None:
        reasons = [f"{one.name}: {one.reason}" for one in answer.out]
        raise NoRecord(" ".join([f"no record recommends anything for {question.words()}.", *reasons, *answer.advice]))
    return answer.best


def ask(mask: str, seqlen: int | str, **more: Any) -> Question:
    """A question from what a user types."""
    question = Question(**fields(mask=mask, seqlen=seqlen, **more))
    check_together(question)
    own = getattr(masks.find(question.mask), "own_lengths", None) is not None
    if question.packing == "draw" and (question.distribution or not own):  # what happens anyway has no name in records
        return replace(question, packing=None)
    return question


def fields(**typed: Any) -> dict[str, Any]:
    """Fields of a question from what a user types; None was not typed, and leaves the field to what is usual."""
    found = {name: value for name, value in typed.items() if value is not None}
    if "seqlen" in found:
        found["seqlen"] = parse_size(str(found["seqlen"]))
    if "heads" in found:
        found["heads_q"], found["heads_kv"] = _heads(found.pop("heads"))
    if "head_dim" in found:
        found["head_dim"], found["head_dim_v"] = parse_dims(str(found["head_dim"]))
    if not isinstance(found.get("memory", ""), str):
        raise BadInput(f"memory must be a text with its unit, such as '80GiB', not {found['memory']!r}.")
    if "memory" in found:
        found["memory_gib"] = parse_memory(found.pop("memory")) / 2**30
    check_drawing(found.get("distribution"), found.get("packing"))
    return found


def _heads(given: Any) -> tuple[int, int]:
    """Query and KV heads, from a text or from numbers."""
    if isinstance(given, str):
        return parse_heads(given)
    numbers = given if isinstance(given, tuple | list) and len(given) == 2 else [given]
    if not all(isinstance(number, Integral) and not isinstance(number, bool) for number in numbers):
        raise BadInput(f"heads must be a text such as '64:8', two numbers such as (64, 8), or one for both, not {given!r}.")
    return parse_heads(":".join(map(str, numbers)))


def table(evidence: Sequence[Evidence], wanted: Mapping[str, Any] | None = None) -> list[Answer]:
    """An answer for every mask, length, shape, pass and number of GPUs that the records hold; of those that have the `wanted` fields,
    and within that memory."""
    wanted = dict(wanted or {})
    memory = wanted.pop("memory_gib", None)
    params = wanted.get("params", {}) if "mask" in wanted else {}  # without a mask: those of any
    example = Question(**{"mask": "full", "seqlen": wanted.get("gpus", 1), **wanted, "params": params})  # unknown names are a mistake
    if "mask" in wanted:
        check_together(example)
    grouped: dict[str, list[Evidence]] = {}
    device = wanted.pop("device", "")
    for one in (one for one in evidence if is_device(device, one)):
        grouped.setdefault(one.record["mask"], []).append(one)
    answers = []
    for name, group in grouped.items():
        if name not in masks.names() + masks.block_names():  # a mask of somebody's plugin, which nobody can ask for here
            continue
        for question in dict.fromkeys(_questions(group)):
            if all(_has(question, field, value) for field, value in wanted.items()):
                answers.append(recommend(replace(question, memory_gib=memory), group))
    return [answer for answer in answers if answer.choices or answer.out]


def exported(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Answers that can be read without LongCA, and on another machine: with every parameter of the mask, also those that go without saying,
    and with shipped journals named from the folder of results on."""
    found = []
    for answer in answers:
        entry = answer.to_json()
        params = answer.question.all_params.items()
        entry["question"]["params"] = {name: DRAWN if callable(value) else value for name, value in params}
        for choice in [*([entry["best"]] if entry["best"] else []), *entry["runners_up"]]:
            choice["records"] = [record | {"file": _portable(Path(record["file"]))} for record in choice["records"]]
        found.append(entry)
    return found


def _portable(file: Path) -> str:
    """As it was given; of a shipped journal without the place where LongCA is installed."""
    return next((file.relative_to(place.parent).as_posix() for place in SHIPPED if file.is_relative_to(place)), str(file))


def _has(question: Question, field: str, value: Any) -> bool:
    if field != "params":
        return bool(getattr(question, field) == value)
    params = question.all_params
    return all(name in params and params[name] == number for name, number in value.items())


def _questions(group: Iterable[Evidence]) -> Iterable[Question]:
    for one in group:
        record, given = one.record, one.record.get("given") or {}
        if record["level"] == "cp" and record.get("ranks") == 1:
            continue
        names = ("mask", "seqlen", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype")
        asked: dict[str, Any] = {name: record[name] for name in names} | {name: given.get(name) for name in ("distribution", "packing")}
        asked |= {
            "own_documents": bool(given.get("documents")),
            "source": record.get("source") or "random",
            "deterministic": bool(record.get("deterministic")),
        }
        asked |= {"gpus": record.get("ranks") or 1, "cluster": record.get("simulated"), "device": one.device}
        params = _Params(parse_settings([other_params(Question(**asked), record)]))
        yield from (Question(**asked, params=params, which=which) for which in PASSES)


class _Params(dict[str, int | float]):
    """Parameters that can be told apart in a set of questions."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))
