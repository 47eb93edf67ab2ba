"""What kernels want instead of bands. Each encoding shows exactly the same pairs as the mask, or refuses with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.errors import Refused
from longca.masks.bands import Bands, Ints, bands, cut_keys, split_rows, spread
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
    b = mask.bands
    pair = (np.stack([b.q0, b.q1], 1), np.stack([b.lo, b.hi_last], 1))
    return Slices(pair[0].astype(np.int32), pair[1].astype(np.int32), (2 * b.a + b.b).astype(np.int32))


def row_intervals(mask: Mask) -> tuple[Int32s, Int32s]:
    """(starts, ends), each [K, seqlen_q]: the visible keys of a row, K = the most intervals any row has (at least 1).

    Unused places hold start == end == the end before them, so that endpoints never decrease along K.
    """
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
    rows, keys = mask.seqlen_q, mask.seqlen_k
    if rows != keys:
        raise Refused(f"column intervals need as many queries as keys, not {rows} and {keys}.")
    start, end = row_intervals(mask.transpose())  # per key: the rows that see it
    if len(start) > 2:
        raise Refused(f"column intervals hold at most 2 intervals of rows per key; this mask has {len(start)}.")
    if len(start) == 1:
        start, end = np.concatenate([start, end]), np.concatenate([end, end])
    diagonal = np.arange(keys, dtype=np.int32)
    seen, two = end[0] > start[0], end[1] > start[1]
    first, stop = np.where(seen, start[0], diagonal), np.where(seen, end[0], diagonal)
    if (first == diagonal).all():
        if not two.any():
            return ColumnIntervals(True, np.stack([stop], 1))
        if (end[1][two] == rows).all():
            return ColumnIntervals(True, np.stack([stop, np.where(two, start[1], rows)], 1).astype(np.int32))
    if not two.any():
        return ColumnIntervals(False, np.stack([stop, first], 1))
    if (two & (start[0] > 0) & (end[1] < rows)).any():
        raise Refused("a key is hidden from rows before, between and after its two intervals; column intervals hold two hidden parts.")
    # with two intervals the hidden parts are the gap, and what lies before the first or behind the second
    opens_at_top = start[0] == 0
    lower_start = np.where(two, np.where(opens_at_top, end[1], end[0]), stop)
    lower_end = np.where(two & ~opens_at_top, start[1], rows)
    upper_start = np.where(two & opens_at_top, end[0], 0)
    upper_end = np.where(two, np.where(opens_at_top, start[1], start[0]), first)
    return ColumnIntervals(False, np.stack([lower_start, lower_end, upper_start, upper_end], 1).astype(np.int32))


def varlen(mask: Mask) -> Varlen:
    """Read documents and window off the bands, build the mask they describe, and refuse unless it is this one."""
    b = mask.bands
    if len(b.q0) == 0:
        raise Refused("no query sees any key.")
    cu_q, cu_k = _documents(b, mask.seqlen_q, mask.seqlen_k)
    document = np.searchsorted(cu_q, b.q0, side="right") - 1
    first_key, last_key = cu_k[document], cu_k[document + 1]
    shift = last_key - cu_q[document + 1]  # the key on the diagonal of query i is i + shift: aligned at the last query and key
    reach_left = np.maximum(b.q0 + shift - b.lo, b.q1 - 1 + shift - b.lo_last)
    reach_right = np.maximum(b.hi - 1 - b.q0 - shift, b.hi_last - b.q1 - shift)
    left = -1 if (b.lo_last == first_key).all() and (b.a == 0).all() else int(reach_left.max())
    right = -1 if (b.hi == last_key).all() and (b.b == 0).all() else int(reach_right.max())
    built = merged(window_bands(cu_q, cu_k, left, right))
    if fingerprint(built, mask.seqlen_q, mask.seqlen_k) != mask.digest:
        raise Refused("it is not documents in a row with one window for all.")
    return Varlen(cu_q.astype(np.int32), cu_k.astype(np.int32), left, right)


def _documents(b: Bands, seqlen_q: int, seqlen_k: int) -> tuple[Ints, Ints]:
    """The finest cut into blocks on the diagonal: rows where everything before sees only keys before everything behind."""
    order = np.argsort(b.q0, kind="stable")
    q0, q1, lo, hi = b.q0[order], b.q1[order], b.lo[order], b.hi_last[order]
    rows_done = np.maximum.accumulate(q1)[:-1]
    keys_done = np.maximum.accumulate(hi)[:-1]
    keys_to_come = np.minimum.accumulate(lo[::-1])[::-1][1:]
    new = (rows_done <= q0[1:]) & (keys_done <= keys_to_come)
    return np.concatenate([[0], q0[1:][new], [seqlen_q]]), np.concatenate([[0], keys_to_come[new], [seqlen_k]])


def window_bands(cu_q: Ints, cu_k: Ints, left: int, right: int) -> Bands:
    """Documents with a window, aligned at the last query and key of each; -1 means no limit."""
    q0, q1, k0, k1 = cu_q[:-1], cu_q[1:], cu_k[:-1], cu_k[1:]
    diagonal = k1 - (q1 - q0)  # the key on the diagonal of the first query
    lo, a = (diagonal - left, 1) if left >= 0 else (k0, 0)
    hi, b = (diagonal + right + 1, 1) if right >= 0 else (k1, 0)
    return clip_each(bands((q0, q1, lo, a, hi, b)), k0, k1)


def clip_each(b: Bands, k0: Ints, k1: Ints) -> Bands:
    """Clip every band to its own range of keys; the ranges follow one another without gaps from key 0.

    They are laid far apart, so that one cut serves them all: it numbers the kept keys, which puts them back where they were.
    """
    reach = int(np.concatenate([b.hi_last - k0, k1 - b.lo, k1 - k0, [0]]).max()) + 1
    away = (2 * np.arange(len(k0)) + 1) * reach
    apart = b._replace(lo=b.lo - k0 + away, hi=b.hi - k0 + away)
    return cut_keys(apart.take(b.height > 0), away, away + (k1 - k0))
