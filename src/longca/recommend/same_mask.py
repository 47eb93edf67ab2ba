"""Masks that equal a plainer one at the length that is asked for: a window over the whole sequence hides nothing, nor does `& causal`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from longca import masks
from longca.recommend.question import Question

PLAIN, PLAIN_DOCUMENTS = ("full", "causal"), ("full_document", "causal_document")


def plainer(question: Question) -> Question | None:
    """Returns the question about a mask by its name that shows the same pairs, without parameters if the asked one has a name; None where
    there is none."""
    if question.is_pattern:
        return None
    if isinstance(masks.find(question.mask), masks.Pattern):
        sizes = [value for value in question.all_params.values() if isinstance(value, int | float)]
        names: Iterable[str] = PLAIN_DOCUMENTS if question.has_documents else PLAIN
        if not any(size >= question.seqlen - 1 for size in sizes):
            return None
    else:
        names = [name for name, pattern in masks.PATTERNS.items() if _is_settled(pattern, question.params)]
    same = (replace(question, mask=name, params=masks.own_params(name, question.params)) for name in names)
    asked = _digests(question)
    return next((other for other in same if other.has_documents == question.has_documents and _digests(other) == asked), None)


def _is_settled(pattern: masks.Pattern, params: Mapping[str, Any]) -> bool:
    """Whether all parameters are given or have a default: drawn ones differ from seed to seed."""
    return all(name in params or not callable(default) for name, default in pattern.defaults.items())


def _digests(question: Question) -> list[str]:
    """What the mask shows: with drawn documents, with one, and with some of different lengths, so that masks are not equal by chance."""
    n, params = question.seqlen, dict[str, Any](question.params)
    documents = [None, [n], [n // 2, n // 3, n - n // 2 - n // 3]] if question.has_documents and n > 2 else [None]
    return [masks.build(question.mask, n, seed=0, documents=lengths, **params).digest for lengths in documents]
