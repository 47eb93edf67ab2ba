"""Static masks beyond the paper's twelve, as models and servers use them. `--masks all` stays the paper's; `--masks every` adds these."""

from __future__ import annotations

import numpy as np

from longca.masks.algebra import union
from longca.masks.bands import Bands, bands, clipped
from longca.masks.encodings import window_bands
from longca.masks.pattern import MORE, Shape, at_least, pattern
from longca.masks.patterns import causal, causal_document, whole


@pattern(MORE, "in its own document: the w keys before it and its own", documents=True, w=1024)
def sliding_window_causal_document(shape: Shape, w: int) -> Bands:
    at_least("sliding_window_causal_document", "w", w, 0)
    return window_bands(shape.cu, shape.cu, w, 0)


@pattern(MORE, "its chunk of c tokens, up to its own key (Llama 4)", c=8192)
def chunked_causal(shape: Shape, c: int) -> Bands:
    at_least("chunked_causal", "c", c, 1)
    edges = np.append(np.arange(0, shape.seqlen, min(c, shape.seqlen)), shape.seqlen)
    return window_bands(edges, edges, -1, 0)


@pattern(MORE, "the first s keys, the w keys before it, and its own (StreamingLLM)", s=4, w=1024)
def sink_window_causal(shape: Shape, s: int, w: int) -> Bands:
    at_least("sink_window_causal", "s", s, 0)
    at_least("sink_window_causal", "w", w, 0)
    window = window_bands(whole(shape), whole(shape), w, 0)
    sinks = clipped(causal.bands(shape), np.array([0]), np.array([min(s, shape.seqlen)]))
    return union(window, sinks, shape.seqlen, shape.seqlen)


@pattern(MORE, "its own key and n keys before it, every d-th", n=16, d=4)
def dilated_window_causal(shape: Shape, n: int, d: int) -> Bands:
    at_least("dilated_window_causal", "n", n, 0)
    at_least("dilated_window_causal", "d", d, 1)
    reach = min(n, (shape.seqlen - 1) // d)  # further keys lie before the first
    if reach and d == 1:
        return window_bands(whole(shape), whole(shape), reach, 0)
    first = d * np.arange(reach + 1)
    return bands((first, shape.seqlen, 0, 1, 1, 1))


@pattern(MORE, "documents in pairs: a prompt that sees all of itself, then an answer that sees both, up to its own key", documents=True)
def prefix_lm_pairs(shape: Shape) -> Bands:
    edges = shape.cu if len(shape.lengths) % 2 == 0 else np.append(shape.cu, shape.seqlen)  # the last prompt may have no answer
    start, prefix, end = edges[:-1:2], edges[1::2], edges[2::2]
    return bands((start, prefix, start, 0, prefix, 0), (prefix, end, start, 0, prefix + 1, 1))


@pattern(
    MORE, "a question, then some answers that see it and themselves, up to their own key; then the next question", documents=True, answers=4
)
def shared_questions(shape: Shape, answers: int) -> Bands:
    at_least("shared_questions", "answers", answers, 0)
    group = np.append(np.arange(0, len(shape.lengths), min(answers + 1, len(shape.lengths))), len(shape.lengths))
    start, end = shape.cu[group[:-1]], shape.cu[group[1:]]
    question_end = shape.cu[group[:-1] + 1]
    return bands(causal_document.bands(shape), (question_end, end, start, 0, question_end, 0))
