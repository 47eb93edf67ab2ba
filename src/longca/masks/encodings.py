"""What kernels want instead of bands. Each encoding shows exactly the same pairs as the mask, or refuses with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.errors import Refused
from longca.masks.bands import Bands, Ints, bands, clipped, in_order, split_rows, spread
from longca.masks.canonical import fingerprint, merged

if TYPE_CHECKING:
    from longca.masks.mask import Mask

Int32s = NDArray[np.int32]


class Varlen(NamedTuple):
    """Documents one after the other, each with the same window: query i of a document with n queries and m keys sees the keys
    [i + m-n - left, i + m-n + right] of its document. -1 means no limit; causal is right = 0."""

    cu_q: Int32s
    cu_k: Int32s
    left: int
    right: int

    @property
    def causal(self) -> bool:
        return self.left == -1 and self.right == 0


class ColumnIntervals(NamedTuple):
    """FlashMask's form, per key the rows that do NOT see it. causal: [LTS] or [LTS, LTE]; else [LTS, UTE] or [LTS, LTE, UTS, UTE]."""

    causal: bool
    rows: Int32s


class Slices(NamedTuple):
    """MagiAttention's form: one query range, key range and type (0 full, 1 causal, 2 inverse causal, 3 bi-causal) per band."""

    q_ranges: Int32s
    k_ranges: Int32s
    types: Int32s


def slices(mask: Mask) -> Slices:
    _check_32_bits(mask)
    b = mask.bands
    pair = (np.stack([b.q0, b.q1], 1), np.stack([b.lo, b.hi_last], 1))
    return Slices(pair[0].astype(np.int32), pair[1].astype(np.int32), (2 * b.a + b.b).astype(np.int32))


def row_intervals(mask: Mask) -> tuple[Int32s, Int32s]:
    """(starts, ends), each [K, seqlen_q]: the visible keys of a row, K = the most intervals any row has (at least 1).

    Unused places hold start == end == the end before them, so that endpoints never decrease along K.
    """
    _check_32_bits(mask)
    b = mask.bands
    overlapping = len(b.q0) > 1 and not (np.maximum.accumulate(b.q1)[:-1] <= b.q0[1:]).all()
    pieces = split_rows(b, np.unique(np.concatenate([b.q0, b.q1]))) if overlapping else b
    is_new_row = np.append(True, pieces.q0[1:] != pieces.q0[:-1]) if len(pieces.q0) else np.zeros(0, bool)
    place = np.arange(len(pieces.q0)) - np.maximum.accumulate(np.where(is_new_row, np.arange(len(pieces.q0)), 0))
    width = int(place.max(initial=0)) + 1
    starts, ends = (np.zeros((width, mask.seqlen_q), np.int32) for _ in range(2))
    for k in range(width):
        which, row = spread(pieces.q0[place == k], pieces.q1[place == k])
        chosen = pieces.take(place == k)
        down = row - chosen.q0[which]
        if k:  # where a row has fewer intervals
            starts[k] = ends[k] = ends[k - 1]
        starts[k, row] = chosen.lo[which] + chosen.a[which] * down
        ends[k, row] = chosen.hi[which] + chosen.b[which] * down
    return starts, ends


def column_intervals(mask: Mask) -> ColumnIntervals:
    """Per key the rows that do not see it: one part above the diagonal, one below it."""
    rows, keys = mask.seqlen_q, mask.seqlen_k
    if rows != keys:
        raise Refused(f"column intervals need as many queries as keys, not {rows} and {keys}.")
    start, end = row_intervals(mask.transpose())  # per key: the rows that see it
    nothing, everything = np.zeros((1, keys), np.int32), np.full((1, keys), rows, np.int32)
    gap_start, gap_end = np.concatenate([nothing, end]), np.concatenate([start, everything])
    hidden = gap_end > gap_start
    parts = int(hidden.sum(0).max(initial=0))
    if parts > 2:
        raise Refused(f"column intervals hold at most 2 hidden parts per key; this mask has {parts}.")
    key = np.arange(keys, dtype=np.int32)
    first, last = hidden.argmax(0), len(hidden) - 1 - hidden[::-1].argmax(0)
    whole = (gap_start[first, key] == 0) & (gap_end[last, key] == rows) & (first == last)  # no row sees it: parted at the diagonal
    has_upper = (hidden.sum(0) == 2) | (hidden[0] & ~whole)
    has_lower = (hidden.sum(0) == 2) | (hidden.any(0) & ~hidden[0])
    upper_start, upper_end = (
        np.where(has_upper, gap_start[first, key], 0),
        np.where(has_upper, gap_end[first, key], np.where(whole, key, 0)),
    )
    lower_start = np.where(has_lower, gap_start[last, key], np.where(whole, key, rows))
    lower_end = np.where(has_lower, gap_end[last, key], rows)
    causal = bool(((upper_start == 0) & (upper_end == key)).all())
    to_the_end, from_the_start = bool((lower_end == rows).all()), bool((upper_start == 0).all())
    if causal:
        columns = [lower_start] if to_the_end else [lower_start, lower_end]
    elif to_the_end and from_the_start:
        columns = [lower_start, upper_end]
    else:
        columns = [lower_start, lower_end, upper_start, upper_end]
    return ColumnIntervals(causal, np.stack(columns, 1).astype(np.int32))


def varlen(mask: Mask) -> Varlen:
    """Read documents and window off the bands, build the mask they describe, and refuse unless it is this one."""
    _check_32_bits(mask)
    b = _without_diagonals(mask.bands)
    if len(b.q0) == 0:
        raise Refused("no query sees any key.")
    one = np.array([0, mask.seqlen_q]), np.array([0, mask.seqlen_k])
    for cu_q, cu_k in (one, _documents(b, mask.seqlen_q, mask.seqlen_k)):
        left, right = _window(b, cu_q, cu_k)
        built = merged(window_bands(cu_q, cu_k, left, right))
        if fingerprint(built, mask.seqlen_q, mask.seqlen_k) == mask.digest:
            return Varlen(cu_q.astype(np.int32), cu_k.astype(np.int32), left, right)
    raise Refused("it is not documents in a row with one window for all.")


def position_ids(mask: Mask) -> Int32s:
    """The place of each token in its document, as packed batches have it. Window and causality are not part of it: `varlen` has them."""
    documents = varlen(mask)
    if not np.array_equal(documents.cu_q, documents.cu_k):
        raise Refused("position ids need documents with as many queries as keys.")
    cu = documents.cu_q
    return np.arange(mask.seqlen_q, dtype=np.int32) - np.repeat(cu[:-1], np.diff(cu))


def _without_diagonals(b: Bands) -> Bands:
    """The same bands with stripes of one key taken apart row by row: they may be documents of one token."""
    diagonal = (b.a == 1) & (b.b == 1) & (b.hi - b.lo == 1)
    stripe = b.take(diagonal)
    which, row = spread(stripe.q0, stripe.q1)
    key = stripe.lo[which] + row - stripe.q0[which]
    return in_order(bands(b.take(~diagonal), (row, row + 1, key, 0, key + 1, 0)))


def _documents(b: Bands, seqlen_q: int, seqlen_k: int) -> tuple[Ints, Ints]:
    """The finest cut into blocks on the diagonal. Queries that see nothing and keys that nobody sees become documents without keys
    and without queries."""
    last_key = np.maximum.accumulate(b.hi_last)
    last_row = np.maximum.accumulate(b.q1)
    first_key = np.minimum.accumulate(b.lo[::-1])[::-1]
    new = np.append(True, (last_row[:-1] <= b.q0[1:]) & (last_key[:-1] <= first_key[1:]))
    old = np.append(new[1:], True)
    # each block is its rows and keys, with the queries and then the keys left out before it
    q0, k0, q1, k1 = b.q0[new], first_key[new], last_row[old], last_key[old]
    cu_q = np.append(np.stack([q0, q0, q1], 1).ravel(), [seqlen_q, seqlen_q])
    cu_k = np.append(np.stack([np.append(0, k1[:-1]), k0, k1], 1).ravel(), [k1[-1], seqlen_k])
    cu_q, cu_k = np.append(0, cu_q), np.append(0, cu_k)
    filled = np.append(True, (np.diff(cu_q) > 0) | (np.diff(cu_k) > 0))
    return cu_q[filled], cu_k[filled]


def _window(b: Bands, cu_q: Ints, cu_k: Ints) -> tuple[int, int]:
    """The window these documents would need: as far as any query sees, or no limit where all see as far as their document goes."""
    document = np.searchsorted(cu_q, b.q0, side="right") - 1
    first_key, last_key = cu_k[document], cu_k[document + 1]
    shift = last_key - cu_q[document + 1]  # the key on the diagonal of query i is i + shift: aligned at the last query and key
    reach_left = np.maximum(b.q0 + shift - b.lo, b.q1 - 1 + shift - b.lo_last)
    reach_right = np.maximum(b.hi - 1 - b.q0 - shift, b.hi_last - b.q1 - shift)
    left = -1 if (b.lo_last == first_key).all() and (b.lo == first_key).all() else max(0, int(reach_left.max()))
    right = -1 if (b.hi == last_key).all() and (b.hi_last == last_key).all() else max(0, int(reach_right.max()))
    return left, right


def _check_32_bits(mask: Mask) -> None:
    longest = max(mask.seqlen_q, mask.seqlen_k)
    if longest > np.iinfo(np.int32).max:
        raise Refused(f"kernels count in 32-bit numbers, which end before {longest} tokens.")


def window_bands(cu_q: Ints, cu_k: Ints, left: int, right: int) -> Bands:
    """Documents with a window, aligned at the last query and key of each; -1 means no limit, and so does a window longer than all."""
    q0, q1, k0, k1 = cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:]
    diagonal = k1 - (q1 - q0)  # the key on the diagonal of the first query
    lo, a = (diagonal - left, 1) if 0 <= left < cu_k[-1] else (k0, 0)
    hi, b = (diagonal + right + 1, 1) if 0 <= right < cu_q[-1] else (k1, 0)
    alive = q1 > q0
    return clipped(bands((q0, q1, lo, a, hi, b)).take(alive), k0[alive], k1[alive])
