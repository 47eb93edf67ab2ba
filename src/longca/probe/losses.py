"""Which way of averaging gives the loss that a model reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
EXPECTED = "the mean over all tokens that have a label"


def loss_mistakes(logits: Floats, ids: Ints, documents: Sequence[int], owner: Ints) -> Iterator[tuple[str, float]]:
    """Ways to compute a loss of next tokens, with the loss of each; the right one comes first. The last token of a
    document has no label."""
    seqlen = len(ids)
    ends = np.zeros(seqlen, bool)
    ends[np.cumsum(documents or (seqlen,)) - 1] = True
    last_of_rank = np.append(owner[1:] != owner[:-1], True)
    following = np.append(ids[1:], ids[0])
    every = np.ones(seqlen, bool)

    def mean(labels: Ints, counted: NDArray[np.bool_], rank: int | None = None) -> float:
        counted = counted if rank is None else counted & (owner == rank)
        return float(_surprise(logits, labels)[counted].mean()) if counted.any() else 0.0

    ranks = np.unique(owner)
    yield EXPECTED, mean(following, ~ends)
    yield (
        "the mean of the ranks' means, although ranks have different numbers of labels",
        float(np.mean([mean(following, ~ends, rank) for rank in ranks])),
    )
    yield "the loss of rank 0 alone", mean(following, ~ends, 0)
    yield "labels are shifted inside each rank: the last token of a rank has no label", mean(following, ~ends & ~last_of_rank)
    yield "the last token of a document is compared with the first of the next one", mean(following, np.append(every[1:], False))
    yield "labels are not shifted: each token predicts itself", mean(ids, every)
    twice = np.append(ids[2:], ids[:2])
    late = np.append(ends[1:], True)
    yield "labels are shifted twice", mean(twice, ~ends & ~late)
    yield "labels are shifted twice", mean(twice, np.arange(seqlen) < seqlen - 2)
    yield "the sum over tokens is divided by all tokens, not by those that have a label", mean(following, ~ends) * float((~ends).mean())
    yield "the losses of ranks are added, not averaged", float(np.sum([mean(following, ~ends, rank) for rank in ranks]))


def _surprise(logits: Floats, labels: Ints) -> Floats:
    """The cross entropy of each row."""
    top = logits.max(1, keepdims=True)
    whole = np.log(np.exp(logits - top).sum(1)) + top[:, 0]
    found: Floats = whole - logits[np.arange(len(labels)), labels]
    return found
