"""Kernels and methods that LongCA has, that could answer a question, and of which there is no record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from longca import masks
from longca.errors import LongcaError
from longca.kernels import registry
from longca.kernels.base import Case, Kernel, No
from longca.masks import AnyMask
from longca.masks.bands import Ints
from longca.masks.selection import Means
from longca.recommend.question import Question
from longca.results.problem import Pass
from longca.results.reading import Results
from longca.results.record import Record
from longca.results.settings import SAMPLE_LENGTH


def unmeasured(question: Question, matching: Sequence[Record], device: str) -> tuple[str, ...]:
    """Names of kernels on one GPU, of methods on many, that take such a mask in such a shape."""
    sample = sample_mask(question)
    case = case_of(question, sample, device)
    if question.gpus > 1:
        return _methods({record.method for record in matching}, sample, case, question.gpus)
    names = sorted(set(registry.compared_names()) - {record.kernel for record in matching})
    return tuple(name for name in names if any(_takes(kernel, sample, case) for kernel in registry.choices(name)))


def case_of(question: Question, mask: AnyMask, device: str) -> Case:
    """The attention call that the question is about, on this mask."""
    shape = (question.heads_q, question.heads_kv, question.head_dim, question.head_dim_v, question.dtype)
    extras: dict[str, Any] = {"deterministic": question.deterministic, "softcap": question.softcap, "sinks": question.sinks}
    return Case(mask.seqlen_q, mask.seqlen_k, *shape, device, backward=question.pass_ is not Pass.FWD, **extras)


def refusal(label: str, mask: AnyMask, case: Case, unless_loaded: str = "") -> str:
    """Why a kernel does not take this mask in this shape; empty where it does, and `unless_loaded` where it is of a plugin that is not
    loaded."""
    try:
        answer = registry.supports(registry.get(label), mask, case)
    except LongcaError:
        return unless_loaded
    return answer.reason if isinstance(answer, No) else ""


def refusal_of_one_pass(label: str, question: Question, device: str) -> str:
    """Why a kernel runs a backward and no forward alone, or a forward and no backward; empty where it takes both or neither."""
    sample = sample_mask(question)
    case = case_of(question, sample, device)
    reasons = [refusal(label, sample, replace(case, backward=backward)) for backward in (False, True)]
    return "" if all(reasons) else "".join(reasons)


def _takes(kernel: Kernel, mask: AnyMask, case: Case) -> bool:
    return case.device in kernel.devices and bool(registry.supports(kernel, mask, case))


def _methods(measured: set[str | None], sample: AnyMask, case: Case, gpus: int) -> tuple[str, ...]:
    from longca.parallel import registry as methods

    others = [methods.get(name) for name in sorted(set(methods.names()) - measured)]
    return tuple(method.name for method in others if method.supports(sample, case, gpus, method.default_grid(case, gpus)))


def measured_mask(record: Record, results: Results, question: Question) -> AnyMask:
    """The mask of a record; the sample where it is a block pattern, or its journal does not have it."""
    entry = results.masks.get((record.built.digest, record.problem.mask))
    if entry is None or entry.bands is None:
        return sample_mask(question)
    return masks.Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands, documents=entry.documents)


def sample_mask(question: Question) -> AnyMask:
    """A mask like the one asked for, but shorter, to ask kernels whether they take it.

    It is long enough for a window or a block of the size asked for to hide something, and leaves the same short block at its end.
    """
    unit = max([SAMPLE_LENGTH, *(int(value) for value in question.params.values())])
    seqlen = min(question.seqlen, 2 * unit + question.seqlen % unit)
    return _sample(question.mask, seqlen, question.heads_kv, question.source, tuple(sorted(question.params.items())))


@lru_cache(maxsize=64)
def _sample(mask: str, seqlen: int, heads: int, source: str, given: tuple[tuple[str, int | float], ...]) -> AnyMask:
    is_pattern, named = masks.has_blocks(mask), masks.find(mask)
    params: dict[str, Any] = ({"heads": heads} if is_pattern and "heads" in named.defaults else {}) | dict(given)
    if isinstance(named, masks.MaskFile):
        return named.mask
    if source == "random" or not is_pattern:
        return masks.build(mask, seqlen, **params)

    def equal_means(row_edges: Ints, col_edges: Ints) -> Means:
        return Means(*(np.zeros((heads, len(edges) - 1, 1)) for edges in (row_edges, col_edges)))

    def selected(pattern: masks.BlockPattern, length: int, *, seed: int = 0, **own: float) -> masks.BlockMask:
        return pattern.selected(length, source, equal_means, seed=seed, **own)

    return (
        named.build(seqlen, selected, **params)
        if isinstance(named, masks.Expression)
        else selected(masks.BLOCK_PATTERNS[mask], seqlen, **params)
    )
