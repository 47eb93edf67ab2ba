"""The static masks. To add one, write one function here: it gets the Shape and its parameters and returns bands."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import numpy as np

from longca.masks.bands import Bands, Ints, bands, spread
from longca.masks.encodings import window_bands
from longca.masks.pattern import Draw, Shape, at_least, pattern


def whole(shape: Shape) -> Ints:
    """The sequence as one document."""
    return np.array([0, shape.seqlen])


@pattern("regular", "every query sees every key")
def full(shape: Shape) -> Bands:
    return window_bands(whole(shape), whole(shape), -1, -1)


@pattern("regular", "every query sees the keys up to its own")
def causal(shape: Shape) -> Bands:
    return window_bands(whole(shape), whole(shape), -1, 0)


@pattern("regular", "the w keys before it, its own, and the w keys after it", w=1024)
def sliding_window(shape: Shape, w: int) -> Bands:
    at_least("sliding_window", "w", w, 0)
    return window_bands(whole(shape), whole(shape), w, w)


@pattern("regular", "the w keys before it and its own", w=1024)
def sliding_window_causal(shape: Shape, w: int) -> Bands:
    at_least("sliding_window_causal", "w", w, 0)
    return window_bands(whole(shape), whole(shape), w, 0)


@pattern("regular", "its own document", documents=True)
def full_document(shape: Shape) -> Bands:
    return window_bands(shape.cu, shape.cu, -1, -1)


@pattern("regular", "its own document, up to its own key", documents=True)
def causal_document(shape: Shape) -> Bands:
    return window_bands(shape.cu, shape.cu, -1, 0)


@pattern("irregular", "the first document (the question) and its own document, up to its own key", documents=True)
def share_question(shape: Shape) -> Bands:
    question = shape.lengths[0]
    answers = causal_document.bands(shape)
    return bands(answers, (question, shape.seqlen, 0, 0, question, 0))


@pattern("irregular", "its own document up to its own key; the last document sees everything before", documents=True)
def causal_blockwise(shape: Shape) -> Bands:
    last = shape.seqlen - shape.lengths[-1]
    examples = causal_document.bands(shape)
    return bands(examples, (last, shape.seqlen, 0, 0, last, 0))


@pattern("irregular", "a prefix of p keys that everybody sees, then causal", p=lambda draw: draw.rng.randint(1, draw.shape.seqlen))
def prefix_lm_causal(shape: Shape, p: int) -> Bands:
    at_least("prefix_lm_causal", "p", p, 0, shape.seqlen)
    return bands((0, p, 0, 0, p, 0), (p, shape.seqlen, 0, 0, p + 1, 1))


@pattern(
    "irregular",
    "in each document: a prefix of p keys, then causal",
    documents=True,
    p=lambda draw: draw.rng.randint(1, draw.shape.lengths[0]),
)
def prefix_lm_document(shape: Shape, p: int) -> Bands:
    at_least("prefix_lm_document", "p", p, 0, shape.seqlen)
    start, end = shape.cu[:-1], shape.cu[1:]
    prefix = np.minimum(start + p, end)
    return bands((start, prefix, start, 0, prefix, 0), (prefix, end, start, 0, prefix + 1, 1))


def global_queries(draw: Draw) -> int:
    """As many as w, where that is given (at most all; a wrong w is refused as w); or drawn."""
    if "w" in draw.params:
        return max(0, min(draw.params["w"], draw.shape.seqlen))
    return draw.rng.randint(1, max(1, draw.shape.seqlen // 3 - 1))


@pattern(
    "irregular",
    "the first g tokens see all and are seen by all; the others see w keys on each side",
    g=global_queries,
    w=lambda draw: draw.params["g"],
)
def global_sliding_window(shape: Shape, g: int, w: int) -> Bands:
    at_least("global_sliding_window", "g", g, 0, shape.seqlen)
    at_least("global_sliding_window", "w", w, 0)
    rest = np.array([0, shape.seqlen - g])
    window = window_bands(rest, rest, w, w)
    moved = window._replace(q0=window.q0 + g, q1=window.q1 + g, lo=window.lo + g, hi=window.hi + g)
    return bands((0, g, 0, 0, shape.seqlen, 0), (g, shape.seqlen, 0, 0, g, 0), moved)


def documents_of_blocks(seqlen: int, seed: int, params: Mapping[str, int]) -> list[int]:
    """Documents of 1 to 8 blocks, the last one cut."""
    rng, lengths, left = Random(seed), list[int](), seqlen
    at_least("block_causal_document", "B", params["B"], 1)
    while left > 0:
        lengths.append(min(rng.randint(1, 8) * params["B"], left))
        left -= lengths[-1]
    return lengths


@pattern("irregular", "its document up to the end of its block of B tokens", own_lengths=documents_of_blocks, B=1024)
def block_causal_document(shape: Shape, B: int) -> Bands:
    at_least("block_causal_document", "B", B, 1)
    B = min(B, shape.seqlen)  # a longer block is the whole document, and its end could leave 64 bits
    start, end = shape.cu[:-1], shape.cu[1:]
    document, block = spread(np.zeros_like(start), -(-(end - start) // B))
    first = start[document] + block * B
    last = np.minimum(first + B, end[document])
    return bands((first, last, start[document], 0, last, 0))
