"""Masks from the forms that other libraries use. The way back is a method of the mask: `varlen()`, `position_ids()`, `dense()`, `slices()`,
`column_intervals()`; FlexAttention's forms are in `flex.py`. Arrays may be lists, numpy arrays or torch tensors."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.masks.bands import Bands, Ints, bands
from longca.masks.encodings import window_bands
from longca.masks.mask import Mask
from longca.text import format_size

MOST_PAIRS = 1 << 28  # of a matrix: 16K x 16K
MOST_INTERVALS = 1 << 22  # of all rows of a matrix together; more are no pattern that bands are made for
Window = int | tuple[int, int]


def from_cu_seqlens(cu_q: Any, cu_k: Any = None, *, window: Window = (-1, -1), causal: bool = False) -> Mask:
    """Returns the mask of FlashAttention's varlen functions: documents given by prefix sums, aligned at the last query and key of each.

    `window` is (left, right), -1 for no limit, or one number for both; causal means right = 0.
    """
    starts_q = _prefix_sums(cu_q, "cu_q")
    starts_k = starts_q if cu_k is None else _prefix_sums(cu_k, "cu_k")
    if len(starts_q) != len(starts_k):
        raise BadInput(f"cu_q and cu_k must have as many entries, not {len(starts_q)} and {len(starts_k)}.")
    left, right = _window(window)
    lengths = np.diff(starts_q)
    documents = lengths if np.array_equal(starts_q, starts_k) and (lengths > 0).all() else None
    pairs = window_bands(starts_q, starts_k, left, 0 if causal else right)
    return Mask.of(int(starts_q[-1]), int(starts_k[-1]), pairs, documents=documents)


def from_position_ids(position_ids: Any, *, window: Window = (-1, -1), causal: bool = True) -> Mask:
    """Returns the mask of a packed row as Hugging Face passes it: a document starts wherever a position does not follow the one before."""
    position = _ints(position_ids, "position_ids")
    if position.ndim == 2 and len(position) == 1:
        position = position[0]
    if position.ndim != 1 or len(position) == 0:
        raise BadInput(f"position_ids must be one row of positions, not of shape {position.shape}; make a mask for each row of a batch.")
    starts = np.flatnonzero(np.append(True, np.diff(position) != 1))
    return from_cu_seqlens(np.append(starts, len(position)), window=window, causal=causal)


def from_dense(visible: Any) -> Mask:
    """Returns the mask of a bool matrix [queries, keys], exact up to 16K x 16K pairs; leading dimensions of size 1 are dropped."""
    matrix = _array(visible, "from_dense")
    while matrix.ndim > 2 and len(matrix) == 1:
        matrix = matrix[0]
    if matrix.dtype != bool or matrix.ndim != 2:
        kind = f"{matrix.dtype} of shape {matrix.shape}"
        raise BadInput(f"from_dense takes a bool matrix [queries, keys], not {kind}; of an additive mask give `mask == 0`.")
    refuse_pairs("from_dense", *matrix.shape)
    return of_rows([matrix], *matrix.shape)


def of_rows(chunks: Any, seqlen_q: int, seqlen_k: int) -> Mask:
    """Returns the mask of bool matrices that hold the rows one after the other."""
    pieces, first, count = list[Bands](), 0, 0
    for chunk in chunks:
        pieces.append(_runs(chunk, first))
        first, count = first + len(chunk), count + len(pieces[-1].q0)
        if count > MOST_INTERVALS:
            raise BadInput(f"the first {first} rows have {count} intervals of visible keys; masks are found with up to {MOST_INTERVALS}.")
    return Mask.of(seqlen_q, seqlen_k, bands(*pieces))


def from_slices(q_ranges: Any, k_ranges: Any, types: Any = None, seqlen_q: int | None = None, seqlen_k: int | None = None) -> Mask:
    """Returns the mask of MagiAttention's slices: query ranges, key ranges and types (0 full, 1 causal, 2 inverse causal, 3 bi-causal).

    Causal is aligned at the last query and key of a slice, inverse causal at the first. Without lengths the ranges end where they do.
    """
    (q0, q1), (k0, k1) = _ranges(q_ranges, "q_ranges"), _ranges(k_ranges, "k_ranges")
    kind = np.zeros(len(q0), np.int64) if types is None else _ints(types, "types")
    if not len(q0) == len(k0) == kind.size:
        raise BadInput(f"slices need as many q_ranges, k_ranges and types, not {len(q0)}, {len(k0)} and {kind.size}.")
    if ((kind < 0) | (kind > 3)).any():
        raise BadInput(f"the type of a slice must be 0, 1, 2 or 3, not {int(kind[(kind < 0) | (kind > 3)][0])}.")
    filled = q1 > q0
    q0, q1, k0, k1, kind = (field[filled] for field in (q0, q1, k0, k1, kind))
    lower, upper = kind // 2, kind % 2
    rows = int(q1.max(initial=0)) if seqlen_q is None else seqlen_q
    return Mask.of(
        rows, int(k1.max(initial=0)) if seqlen_k is None else seqlen_k, bands((q0, q1, k0, lower, k1 - upper * (q1 - q0 - 1), upper))
    )


def from_column_intervals(startend_row_indices: Any, *, causal: bool = False) -> Mask:
    """Returns the mask of FlashMask's startend_row_indices, [keys, 1, 2 or 4] or [batch, heads, keys, 1, 2 or 4] with one mask for all.

    Per key they name the rows that do NOT see it: causal [LTS] or [LTS, LTE], else [LTS, UTE] or [LTS, LTE, UTS, UTE].
    """
    columns = _ints(startend_row_indices, "startend_row_indices")
    columns = columns.reshape(prod(columns.shape[:-2]), *columns.shape[-2:]) if columns.ndim > 2 else columns[None]
    forms = (1, 2) if causal else (2, 4)
    if columns.ndim != 3 or columns.shape[2] not in forms or len(columns) == 0:
        wanted = f"[keys, {forms[0]} or {forms[1]}] where causal is {causal}"
        raise BadInput(f"startend_row_indices must be {wanted}, not of shape {columns.shape[1:]}.")
    if (columns != columns[:1]).any():
        raise BadInput("startend_row_indices differ between batch entries or heads; make a mask for each of them.")
    length = columns.shape[1]
    if ((columns < 0) | (columns > length)).any():
        raise BadInput(f"startend_row_indices must be rows from 0 to {length}, the number of keys.")
    key, nothing, everything = np.arange(length), np.zeros(length, np.int64), np.full(length, length)
    given = list(columns[0].T)
    if causal:
        hidden = [(nothing, key), (given[0], given[1] if len(given) == 2 else everything)]
    else:
        hidden = [(nothing, given[1]), (given[0], everything)] if len(given) == 2 else [(given[0], given[1]), (given[2], given[3])]
    return _seen_between(key, length, hidden).transpose()


def _seen_between(key: Ints, rows: int, hidden: list[tuple[Ints, Ints]]) -> Mask:
    """A mask over keys: of each the rows outside two hidden intervals, which may overlap or be empty."""
    (start, end), (other_start, other_end) = ((start, np.maximum(start, end)) for start, end in hidden)
    swapped = other_start < start
    start, end, other_start, other_end = (
        np.where(swapped, y, x) for x, y in ((start, other_start), (end, other_end), (other_start, start), (other_end, end))
    )
    parts = ((0, start), (end, other_start), (np.maximum(end, other_end), rows))
    return Mask.of(len(key), rows, bands(*((key, key + 1, first, 0, last, 0) for first, last in parts)))


def refuse_pairs(function: str, seqlen_q: int, seqlen_k: int) -> None:
    """Raises BadInput where a mask has too many pairs to look at each of them."""
    if seqlen_q * seqlen_k > MOST_PAIRS:
        sizes = f"{format_size(seqlen_q)} x {format_size(seqlen_k)}"
        raise BadInput(f"{function} looks at every pair, of 16K x 16K at most, not of {sizes}; write a longer mask as bands.")


def _runs(matrix: NDArray[np.bool_], first_row: int) -> Bands:
    """Each interval of True in a row, as a band of one row."""
    edges = np.zeros((matrix.shape[0], matrix.shape[1] + 1), bool)
    edges[:, :-1] = matrix
    edges[:, 1:] ^= matrix
    row, key = np.nonzero(edges)  # starts and ends take turns
    return bands((row[::2] + first_row, row[::2] + first_row + 1, key[::2], 0, key[1::2], 0))


def _window(window: Window) -> tuple[int, int]:
    """Returns how many keys to the left and to the right are visible, -1 for no limit."""
    pair = window if isinstance(window, tuple | list) else (window, window)
    if len(pair) != 2 or not all(isinstance(side, int | np.integer) and not isinstance(side, bool) and side >= -1 for side in pair):
        raise BadInput(f"window must be one number of keys, or (left, right), -1 for no limit, not {window!r}.")
    return int(pair[0]), int(pair[1])


def _array(values: Any, what: str) -> NDArray[Any]:
    """Lists, numpy arrays, and torch tensors of any device."""
    try:
        return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    except ValueError as error:
        raise BadInput(f"{what}: the rows of a list have different lengths; give an array.") from error
    except TypeError as error:  # such as bf16, which numpy does not have
        raise BadInput(
            f"{what} cannot be {getattr(values, 'dtype', type(values).__name__)}; give whole numbers, or a bool matrix."
        ) from error


def _ints(values: Any, what: str) -> Ints:
    array = _array(values, what)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise BadInput(f"{what} must be whole numbers, not {array.dtype}.")
    return array.astype(np.int64)


def _prefix_sums(values: Any, what: str) -> Ints:
    sums = _ints(values, what)
    if sums.ndim != 1 or len(sums) < 1 or sums[0] != 0 or (np.diff(sums) < 0).any():
        raise BadInput(f"{what} must be prefix sums of document lengths, such as [0, 353, 8192], not {str(sums.tolist())[:60]}.")
    return sums


def _ranges(values: Any, what: str) -> tuple[Ints, Ints]:
    pairs = _ints(values, what)
    if pairs.size == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise BadInput(f"{what} must be pairs [start, end], not of shape {pairs.shape}.")
    return pairs[:, 0], pairs[:, 1]
