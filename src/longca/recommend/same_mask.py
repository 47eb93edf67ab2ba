"""Masks that equal a plainer one at the length that is asked for: a window over the whole sequence hides nothing."""

from __future__ import annotations

from typing import Any

from longca import masks
from longca.recommend.question import Question

PLAIN, PLAIN_DOCUMENTS = ("full", "causal"), ("full_document", "causal_document")


def plainer(question: Question) -> str | None:
    """Returns the name of the mask without parameters that shows the same pairs; None where there is none."""
    sizes = [value for value in question.all_params.values() if isinstance(value, int | float)]
    if question.is_pattern or not any(size >= question.seqlen - 1 for size in sizes):
        return None
    params: dict[str, Any] = dict(question.params)
    asked = masks.build(question.mask, question.seqlen, seed=0, **params).digest
    names = PLAIN_DOCUMENTS if question.has_documents else PLAIN
    return next((name for name in names if masks.build(name, question.seqlen, seed=0).digest == asked), None)
