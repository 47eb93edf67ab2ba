"""Recommendations for other programs: one answer, or the table of all that the records can answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from longca import masks
from longca.bench.metrics import PASSES
from longca.errors import BadInput, LongcaError
from longca.report.evidence import Evidence, load
from longca.report.question import Question, other_params
from longca.report.recommend import Answer, Choice, recommend
from longca.text import parse_dims, parse_heads, parse_memory, parse_settings, parse_size

NO_RECORD = 4  # the exit code where no record answers


class NoRecord(LongcaError):
    """No record answers; the sentence says which run would."""

    exit_code = NO_RECORD


def best(
    mask: str,
    seqlen: int | str,
    heads: str = "64:8",
    head_dim: int | str = 128,
    dtype: str = "bf16",
    *,
    passes: str = "fwd+bwd",
    gpus: int = 1,
    cluster: str | None = None,
    memory: str | None = None,
    device: str = "",
    results: str | Path | Sequence[str | Path] | None = None,
    **params: int | float,
) -> Choice:
    """The fastest kernel (on many GPUs: method, grid and kernel) for a mask, from the shipped records or those of `results`.

    >>> longca.best("causal_document", "32K", "64:8").kernel
    """
    question = ask(
        mask, seqlen, heads, head_dim, dtype, params=params, which=passes, gpus=gpus, cluster=cluster, memory=memory, device=device
    )
    answer = recommend(question, load([results] if isinstance(results, str | Path) else results))
    if answer.best is None:
        reasons = [f"{one.name}: {one.reason}" for one in answer.out]
        raise NoRecord(" ".join([f"no record recommends anything for {question.words()}.", *reasons, *answer.advice]))
    return answer.best


def ask(mask: str, seqlen: int | str, heads: str, head_dim: int | str, dtype: str, *, memory: str | None = None, **more: Any) -> Question:
    """A question from what a user types."""
    (heads_q, heads_kv), (size, size_v) = parse_heads(heads), parse_dims(str(head_dim))
    if not isinstance(memory, str | None):
        raise BadInput(f"memory must be a text with its unit, such as '80GiB', not {memory!r}.")
    memory_gib = None if memory is None else parse_memory(memory) / 2**30
    return Question(mask, parse_size(str(seqlen)), heads_q, heads_kv, size, size_v, dtype, memory_gib=memory_gib, **more)


def table(evidence: Sequence[Evidence], like: Question | None = None) -> list[Answer]:
    """An answer for every mask, length, shape, pass and number of GPUs that the records hold; `like` gives the memory and the device."""
    grouped: dict[str, list[Evidence]] = {}
    for one in evidence:
        grouped.setdefault(one.record["mask"], []).append(one)
    answers = []
    for name, group in grouped.items():
        if name not in masks.names() + masks.block_names():  # a mask of somebody's plugin, which nobody can ask for here
            continue
        for question in dict.fromkeys(_questions(group)):
            if like is None or like.device.lower() in question.device.lower():
                answers.append(recommend(question if like is None else replace(question, memory_gib=like.memory_gib), group))
    return [answer for answer in answers if answer.choices or answer.out]


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
