"""Random masks for property tests, each with its visible pairs worked out here, pair by pair, without the package."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from longca import masks
from longca.masks import Mask

Dense = NDArray[np.bool_]
LENGTHS = st.integers(1, 40)
REGULAR = ("full", "causal", "sliding_window", "sliding_window_causal", "full_document", "causal_document")
IRREGULAR = (
    "share_question",
    "causal_blockwise",
    "prefix_lm_causal",
    "prefix_lm_document",
    "global_sliding_window",
    "block_causal_document",
)
PAPER = (*REGULAR, *IRREGULAR)  # the paper's twelve; the package may have more


@st.composite
def documents_of(draw: st.DrawFn, seqlen: int) -> list[int]:
    """Any way to cut `seqlen` tokens into documents, single tokens included."""
    cuts = sorted(draw(st.sets(st.integers(1, seqlen - 1), max_size=8))) if seqlen > 1 else []
    return [end - start for start, end in zip([0, *cuts], [*cuts, seqlen], strict=True)]


@dataclass(frozen=True)
class Pair:
    """A query, a key and what the definitions of masks need to know about them."""

    i: int
    j: int
    documents: list[int]
    params: dict[str, int]

    @property
    def causal(self) -> bool:
        return self.j <= self.i

    @property
    def owners(self) -> tuple[int, int]:
        """The documents of query and key."""
        ends = np.cumsum(self.documents)
        return int(np.searchsorted(ends, self.i, "right")), int(np.searchsorted(ends, self.j, "right"))

    @property
    def together(self) -> bool:
        return self.owners[0] == self.owners[1]

    @property
    def pair(self) -> tuple[int, int]:
        """The pairs of documents of query and key."""
        return self.owners[0] // 2, self.owners[1] // 2

    @property
    def first(self) -> int:
        """The first token of the query's document."""
        return sum(self.documents[: self.owners[0]])


# Whether query i sees key j: the definition of each mask, as a formula.
FORMULAS: dict[str, Callable[[Pair], bool]] = {
    "full": lambda x: True,
    "causal": lambda x: x.causal,
    "sliding_window": lambda x: abs(x.i - x.j) <= x.params["w"],
    "sliding_window_causal": lambda x: x.causal and x.i - x.j <= x.params["w"],
    "full_document": lambda x: x.together,
    "causal_document": lambda x: x.together and x.causal,
    "share_question": lambda x: x.causal and (x.together or x.owners[1] == 0),
    "causal_blockwise": lambda x: x.causal and (x.together or x.owners[0] == len(x.documents) - 1),
    "prefix_lm_causal": lambda x: x.causal or max(x.i, x.j) < x.params["p"],
    "prefix_lm_document": lambda x: x.together and (x.causal or max(x.i, x.j) - x.first < x.params["p"]),
    "global_sliding_window": lambda x: min(x.i, x.j) < x.params["g"] or abs(x.i - x.j) <= x.params["w"],
    "block_causal_document": lambda x: x.together and (x.j - x.first) // x.params["B"] <= (x.i - x.first) // x.params["B"],
    "sliding_window_causal_document": lambda x: x.together and 0 <= x.i - x.j <= x.params["w"],
    "chunked_causal": lambda x: x.causal and x.i // x.params["c"] == x.j // x.params["c"],
    "sink_window_causal": lambda x: x.causal and (x.j < x.params["s"] or x.i - x.j <= x.params["w"]),
    "dilated_window_causal": lambda x: x.causal and (x.i - x.j) % x.params["d"] == 0 and (x.i - x.j) // x.params["d"] <= x.params["n"],
    "prefix_lm_pairs": lambda x: x.pair[0] == x.pair[1] and (x.causal or max(x.owners) % 2 == 0),
    "shared_questions": lambda x: (
        x.causal and (x.together or x.owners[1] == x.owners[0] // (x.params["answers"] + 1) * (x.params["answers"] + 1))
    ),
}

# Values of each parameter over its whole range, from the length: windows longer than the sequence, prefixes of all of it or of nothing.
PARAMS: dict[str, dict[str, Callable[[int], st.SearchStrategy[int]]]] = {
    "sliding_window": {"w": lambda seqlen: st.integers(0, 2 * seqlen)},
    "sliding_window_causal": {"w": lambda seqlen: st.integers(0, 2 * seqlen)},
    "prefix_lm_causal": {"p": lambda seqlen: st.integers(0, seqlen)},
    "prefix_lm_document": {"p": lambda seqlen: st.integers(0, seqlen)},
    "global_sliding_window": {"g": lambda seqlen: st.integers(0, seqlen), "w": lambda seqlen: st.integers(0, 2 * seqlen)},
    "block_causal_document": {"B": lambda seqlen: st.integers(1, 2 * seqlen)},
    "sliding_window_causal_document": {"w": lambda seqlen: st.integers(0, 2 * seqlen)},
    "chunked_causal": {"c": lambda seqlen: st.integers(1, 2 * seqlen)},
    "sink_window_causal": {"s": lambda seqlen: st.integers(0, 2 * seqlen), "w": lambda seqlen: st.integers(0, 2 * seqlen)},
    "dilated_window_causal": {"n": lambda seqlen: st.integers(0, seqlen), "d": lambda seqlen: st.integers(1, seqlen)},
    "shared_questions": {"answers": lambda seqlen: st.integers(0, 6)},
}


def sees(name: str, i: int, j: int, documents: list[int], params: dict[str, int]) -> bool:
    """Whether query i sees key j, by the mask's formula."""
    return bool(FORMULAS[name](Pair(i, j, documents, params)))


def all_pairs(name: str, seqlen: int, documents: list[int], params: dict[str, int]) -> Dense:
    return np.array([[sees(name, i, j, documents, params) for j in range(seqlen)] for i in range(seqlen)])


@st.composite
def patterns(draw: st.DrawFn, names: tuple[str, ...] = tuple(FORMULAS)) -> tuple[Mask, Dense]:
    """A mask by name with any length, documents and parameters."""
    name = draw(st.sampled_from(names))
    seqlen = draw(LENGTHS)
    pattern = masks.PATTERNS[name]
    documents = draw(documents_of(seqlen)) if pattern.has_documents else []
    params = {param: draw(values(seqlen)) for param, values in PARAMS.get(name, {}).items()}
    mask = pattern(seqlen, documents=documents or None, **params)
    return mask, all_pairs(name, seqlen, documents, mask.params)


@st.composite
def ranges_in(draw: st.DrawFn, length: int) -> list[tuple[int, int]]:
    """Sorted disjoint ranges inside [0, length), touching ones and empty ones included."""
    ends = sorted(draw(st.lists(st.integers(0, length), max_size=8)))
    pairs = list(zip(ends[::2], ends[1::2], strict=False))
    return [*pairs, (pairs[-1][1], pairs[-1][1])] if pairs and draw(st.booleans()) else pairs


def indices(ranges: list[tuple[int, int]]) -> NDArray[np.int64]:
    return np.array([index for start, end in ranges for index in range(start, end)], np.int64)


def band_pairs(band: tuple[int, ...], rows: int, keys: int) -> Dense | None:
    """The pairs of one band (q0, q1, lo, a, hi, b), or None where it leaves the mask, or ends before it starts in every row."""
    q0, q1, lo, a, hi, b = band
    dense = np.zeros((rows, keys), bool)
    if q0 < q1 and all(hi + b * i < lo + a * i for i in range(q1 - q0)):
        return None
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


def assert_is(mask: Mask, dense: Dense) -> None:
    """It shows these pairs, and its bands are in the form that the constructor demands."""
    assert (mask.seqlen_q, mask.seqlen_k) == dense.shape
    np.testing.assert_array_equal(mask.dense(), dense)
    Mask(mask.seqlen_q, mask.seqlen_k, mask.bands)
