"""How much memory a kernel takes, and whether the device, or the user, has as much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from longca.kernels.base import BYTES
from longca.recommend.question import Question
from longca.results.metrics import GIB
from longca.results.problem import Pass
from longca.results.ranking import NOT_MEASURED, Entry, Figure
from longca.results.reading import Results
from longca.results.record import Record

NOT_COUNTED, TOO_LARGE = "not counted", "too large"  # statuses beside those of records


def results_gib(shape: Record | Question, pass_: Pass) -> float:
    """The size of out, and for a backward also of dq, dk and dv."""
    per_token = shape.heads_q * shape.head_dim_v
    if pass_ is not Pass.FWD:
        per_token += shape.heads_q * shape.head_dim + shape.heads_kv * (shape.head_dim + shape.head_dim_v)
    return shape.seqlen * per_token * BYTES[shape.dtype] / GIB


def queries_gib(shape: Record | Question) -> float:
    """The size of q and out, over which other memory is scaled: sums in fp32, lse, what a kernel keeps."""
    return shape.seqlen * shape.heads_q * (shape.head_dim + shape.head_dim_v) * BYTES[shape.dtype] / GIB


class Limit(NamedTuple):
    """Memory that there is, in words and in GiB."""

    gib: float
    owner: str  # "asked for", or "of the NVIDIA H200"


def needed_gib(figures: Sequence[Figure], question: Question) -> float | None:
    """The most memory of any mask, with the inputs; that of a rank includes its tokens already."""
    peaks = [figure.peak_gib for figure in figures]
    known = [peak for peak in peaks if peak is not None]
    if not known or len(known) < len(peaks):
        return None
    return max(known) + (0.0 if figures[0].records[0].method else question.input_gib)


def within_memory(entry: Entry, question: Question, results: Results, predicted: bool) -> Entry:
    """The entry, out if it needs more memory than the device has, or than the user has. `predicted`: its figures were not measured."""
    limit = _limit(entry, question, results)
    if limit is None or entry.out:
        return entry
    need = needed_gib([*entry.figures.values()], question)
    if need is None and question.memory_gib is None:
        return entry
    if need is None and any(results.environment(record).on_cpu for record in entry.records):
        return entry.without(NOT_COUNTED, "memory is counted on GPUs only")
    if need is None:
        return entry.without(NOT_MEASURED, "its memory was not counted, so --memory cannot be answered")
    if need <= limit.gib:
        return entry
    takes = "would take about" if predicted else "takes"
    return entry.without(TOO_LARGE, f"it {takes} {need:.3g} GiB with its inputs, over the {limit.gib:.3g} GiB {limit.owner}")


def least_memory(too_large: Sequence[Entry], question: Question, results: Results) -> list[str]:
    """What comes closest where memory is too small, and how many GPUs may have enough."""
    needs = [(need, entry) for entry in too_large if (need := needed_gib([*entry.figures.values()], question)) is not None]
    if not needs:
        return []
    need, entry = min(needs, key=lambda pair: (pair[0], pair[1].line))
    sentences = [f"the least takes {need:.3g} GiB: {entry.line}."]
    device = _device_limit(entry, results)
    if device is not None and need > device.gib:
        gpus = question.gpus * math.ceil(need / device.gib)
        sentences.append(f"more GPUs have more memory: ask with --gpus, for {gpus} or more.")
    return sentences


def _limit(entry: Entry, question: Question, results: Results) -> Limit | None:
    """The smaller of what is asked for and what the device has."""
    asked = None if question.memory_gib is None else Limit(question.memory_gib, "asked for")
    return min((limit for limit in (asked, _device_limit(entry, results)) if limit), default=None)


def _device_limit(entry: Entry, results: Results) -> Limit | None:
    """The memory of the device that the entry's records are of; None where it is unknown."""
    environments = [results.environment(record) for record in entry.records]
    limits = [Limit(gib, f"of the {environment.name}") for environment in environments if (gib := environment.memory_gib) is not None]
    return min(limits, default=None)
