"""Random masks for property tests, each with its visible pairs worked out here, pair by pair, without the package."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from longca import masks
from longca.masks import Mask

Dense = NDArray[np.bool_]
LENGTHS = st.integers(1, 40)
DOCUMENT_MASKS = ("full_document", "causal_document", "share_question", "causal_blockwise", "prefix_lm_document", "block_causal_document")
REGULAR = ("full", "causal", "sliding_window", "sliding_window_causal", "full_document", "causal_document")


@st.composite
def documents_of(draw: st.DrawFn, seqlen: int) -> list[int]:
    """Any way to cut `seqlen` tokens into documents, single tokens included."""
    cuts = sorted(draw(st.sets(st.integers(1, seqlen - 1), max_size=8))) if seqlen > 1 else []
    return [end - start for start, end in zip([0, *cuts], [*cuts, seqlen], strict=True)]


@st.composite
def params_of(draw: st.DrawFn, name: str, seqlen: int) -> dict[str, int]:
    """Parameters over their whole range: windows longer than the sequence, prefixes of all of it or of nothing."""
    window, prefix = st.integers(0, 2 * seqlen), st.integers(0, seqlen)
    known = {
        "sliding_window": {"w": window},
        "sliding_window_causal": {"w": window},
        "prefix_lm_causal": {"p": prefix},
        "prefix_lm_document": {"p": prefix},
        "global_sliding_window": {"g": prefix, "w": window},
        "block_causal_document": {"B": st.integers(1, 2 * seqlen)},
    }
    return {param: draw(values) for param, values in known.get(name, {}).items()}


def sees(name: str, i: int, j: int, seqlen: int, documents: list[int], params: dict[str, int]) -> bool:
    """Whether query i sees key j: the definition of each mask, as a formula."""
    owner = np.repeat(np.arange(len(documents)), documents) if documents else np.zeros(seqlen, int)
    first = int(np.flatnonzero(owner == owner[i])[0])
    together, causal = bool(owner[i] == owner[j]), j <= i
    w, p, g, block = (params.get(param, 0) for param in ("w", "p", "g", "B"))
    answers = {
        "full": lambda: True,
        "causal": lambda: causal,
        "sliding_window": lambda: abs(i - j) <= w,
        "sliding_window_causal": lambda: causal and i - j <= w,
        "full_document": lambda: together,
        "causal_document": lambda: together and causal,
        "share_question": lambda: causal and (together or owner[j] == 0),
        "causal_blockwise": lambda: causal and (together or owner[i] == len(documents) - 1),
        "prefix_lm_causal": lambda: causal or (i < p and j < p),
        "prefix_lm_document": lambda: together and (causal or (i - first < p and j - first < p)),
        "global_sliding_window": lambda: i < g or j < g or abs(i - j) <= w,
        "block_causal_document": lambda: together and (j - first) // block <= (i - first) // block,
    }
    return bool(answers[name]())


@st.composite
def patterns(draw: st.DrawFn, names: tuple[str, ...] | None = None) -> tuple[Mask, Dense]:
    """One of the twelve with any length, documents and parameters."""
    name = draw(st.sampled_from(names or tuple(masks.names())))
    seqlen = draw(LENGTHS)
    documents = draw(documents_of(seqlen)) if name in DOCUMENT_MASKS else []
    params = draw(params_of(name, seqlen))
    mask = masks.build(name, seqlen, documents=documents or None, **params)
    assert isinstance(mask, Mask)
    dense = [[sees(name, i, j, seqlen, documents, params) for j in range(seqlen)] for i in range(seqlen)]
    return mask, np.array(dense)


@st.composite
def ranges_in(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Sorted disjoint ranges inside [0, length), touching ones and empty ones included."""
    ends = sorted(draw(st.lists(st.integers(0, length), max_size=8)))
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    return [*pairs, (pairs[-1][1], pairs[-1][1])] if pairs and draw(st.booleans()) else pairs


def indices(ranges: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array([index for start, end in ranges for index in range(start, end)], np.int64)


def band_pairs(band: tuple[int, ...], rows: int, keys: int) -> Dense | None:
    """The pairs of one band (q0, q1, lo, a, hi, b), or None where it leaves the mask."""
    q0, q1, lo, a, hi, b = band
    dense = np.zeros((rows, keys), bool)
    for i in range(q0, q1):
        start, end = lo + a * (i - q0), hi + b * (i - q0)
        if start < end:
            if start < 0 or end > keys:
                return None
            dense[i, start:end] = True
    return dense


@st.composite
def disjoint_bands(draw: st.DrawFn) -> tuple[Mask, Dense]:
    """Any bands that do not overlap, in any order; rows of them may be empty."""
    rows = draw(st.integers(0, 16))
    keys = rows if draw(st.booleans()) else draw(st.integers(0, 16))
    dense, kept = np.zeros((rows, keys), bool), []
    for _ in range(draw(st.integers(0, 6))):
        q0, q1 = sorted((draw(st.integers(0, rows)), draw(st.integers(0, rows))))
        slope = st.integers(0, 1)
        band = (q0, q1, draw(st.integers(-2, keys)), draw(slope), draw(st.integers(-2, keys)), draw(slope))
        pairs = band_pairs(band, rows, keys)
        if pairs is not None and not (dense & pairs).any():
            dense |= pairs
            kept.append(band)
    return Mask.of(rows, keys, kept), dense


@st.composite
def cut_patterns(draw: st.DrawFn) -> tuple[Mask, Dense]:
    """A pattern after a row cut, a key cut and perhaps a transposition: queries and keys of different number."""
    mask, dense = draw(patterns())
    rows, keys = draw(ranges_in(mask.seqlen_q)), draw(ranges_in(mask.seqlen_k))
    mask, dense = mask.rows(rows).cols(keys), dense[indices(rows)][:, indices(keys)]
    return (mask.transpose(), dense.T) if draw(st.booleans()) else (mask, dense)


def random_masks() -> st.SearchStrategy[tuple[Mask, Dense]]:
    return st.one_of(patterns(), cut_patterns(), disjoint_bands())


def runs_of(line: NDArray[Any]) -> list[tuple[int, int]]:
    """The intervals of True in a line of bools."""
    edge = np.diff(np.concatenate([[0], line.astype(int), [0]]))
    return list(zip(np.flatnonzero(edge == 1).tolist(), np.flatnonzero(edge == -1).tolist(), strict=True))
