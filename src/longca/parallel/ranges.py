"""Sets of tokens as sorted, disjoint, half-open ranges: int64 arrays [n, 2], so that ten thousand documents cost nothing."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from longca.masks import AnyMask, Mask
from longca.masks.bands import spread, tokens_before

Ranges = NDArray[np.int64]
Shards = tuple[Ranges, ...]  # the tokens of each rank
ROW_GAP = 256  # so many rows cost less than one more operation


def as_array(ranges: Iterable[tuple[int, int]] | Ranges) -> Ranges:
    given = ranges if isinstance(ranges, np.ndarray) else list(ranges)
    return np.asarray(given, np.int64).reshape(-1, 2)


def joined(ranges: Ranges) -> Ranges:
    """The union of ranges in any order: sorted, and those that touch made one."""
    ranges = ranges[ranges[:, 1] > ranges[:, 0]]
    if not len(ranges):
        return ranges
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reach = np.maximum.accumulate(ranges[:, 1])
    opens = np.append(True, ranges[1:, 0] > reach[:-1])
    closes = np.append(opens[1:], True)
    return np.stack([ranges[opens, 0], reach[closes]], 1)


def common(left: Ranges, right: Ranges) -> Ranges:
    """The tokens in both."""
    first = np.searchsorted(right[:, 1], left[:, 0], side="right")
    last = np.searchsorted(right[:, 0], left[:, 1], side="left")
    mine, theirs = spread(first, last)
    return np.stack([np.maximum(left[mine, 0], right[theirs, 0]), np.minimum(left[mine, 1], right[theirs, 1])], 1)


def count(ranges: Ranges) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def tokens(ranges: Ranges) -> NDArray[np.int64]:
    """Every token, in order."""
    return spread(ranges[:, 0], ranges[:, 1])[1]


def part(ranges: Ranges, first: int, last: int) -> Ranges:
    """Of the tokens in order, the ones numbered first .. last-1."""
    end = np.cumsum(ranges[:, 1] - ranges[:, 0])
    start = end - (ranges[:, 1] - ranges[:, 0])
    lower = np.maximum(start, first) - start + ranges[:, 0]
    upper = np.minimum(end, last) - start + ranges[:, 0]
    kept = np.stack([lower, upper], 1)
    return np.asarray(kept[upper > lower], np.int64)


def positions(inside: Ranges, of: Ranges) -> NDArray[np.int64]:
    """Where the tokens of `inside` stand among the tokens of `of`, which holds them all."""
    return tokens_before(of[:, 0], of[:, 1], tokens(inside))


def cut(mask: AnyMask, rows: Ranges, keys: Ranges) -> AnyMask:
    """Returns the mask of these queries over those keys."""
    return mask.rows(rows).cols(keys)  # type: ignore[arg-type]  # arrays are ranges too


def extent(mask: AnyMask) -> tuple[slice, slice]:
    """Returns the slices of rows and of keys that contain all visible pairs, both empty if there are none. No block is cut."""
    if isinstance(mask, Mask):
        starts, ends = (mask.bands.q0, mask.bands.lo), (mask.bands.q1, mask.bands.hi_last)
    else:
        row, key = (np.flatnonzero(mask.kept.any(axes)) for axes in ((0, 2), (0, 1)))
        starts, ends = (mask.row_edges[row], mask.col_edges[key]), (mask.row_edges[row + 1], mask.col_edges[key + 1])
    rows, keys = (slice(int(start.min()), int(end.max())) if len(start) else slice(0, 0) for start, end in zip(starts, ends, strict=True))
    return rows, keys


def row_slices(mask: Mask, gap: int = ROW_GAP) -> list[slice]:
    """Returns the rows with visible keys as a few slices. A slice may include up to `gap` successive rows without."""
    some = mask.bands.hi_last > mask.bands.lo
    rows = joined(np.stack([mask.bands.q0[some], mask.bands.q1[some] + gap], 1))
    return [slice(first, last - gap) for first, last in rows.tolist()]


def seen_keys(mask: Mask, rows: Ranges) -> Ranges:
    """The keys that at least one of the rows sees. Rows of a band follow one another without a gap, so its keys are one range."""
    bands = mask.rows(rows).bands  # type: ignore[arg-type]
    return joined(np.stack([bands.lo, bands.hi_last], 1))
