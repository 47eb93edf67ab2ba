"""Which rows a check looks at, and where its data is loud.

Looking at some rows is enough, and cheap at any length: one in every tile of 64 rows (more in short sequences), and the rows at the ends
of bands, where mistakes live. dout is zero elsewhere, so the gradients of all keys come from these rows alone.

A key that is dropped or added at the end of an interval of 100,000 keys changes plain data less than bf16 rounding does. So there
is a second data set with loud edges: V is 64 times larger at the keys just inside and just outside the intervals of some rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from longca.masks import AnyMask, BlockMask

TILE = 64
LOUD = 64.0
LEAST_TILES = 64  # in shorter sequences tiles are smaller, so that no fewer rows are looked at
MOST_BAND_ENDS = 2048
MOST_LOUD_ROWS = 256
MOST_LOUD_BLOCKS = 256

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Probe:
    rows: Ints  # sorted
    loud_keys: Ints  # sorted


def probe(mask: AnyMask, seed: int = 0) -> Probe:
    rng = Random(f"probe/{seed}")
    size = min(TILE, max(2, mask.seqlen_q // LEAST_TILES))  # 2 and more: some rows must stay without gradient
    starts = range(0, mask.seqlen_q, size)
    one_per_tile = np.array([start + rng.randrange(min(size, mask.seqlen_q - start)) for start in starts], np.int64)
    ends = _spaced(_band_ends(mask), MOST_BAND_ENDS)
    rows = np.unique(np.concatenate([one_per_tile, ends]))
    loud_rows = np.unique(np.concatenate([_spaced(one_per_tile, MOST_LOUD_ROWS // 2), _spaced(ends, MOST_LOUD_ROWS // 2)]))
    return Probe(rows, _edges_of(mask, loud_rows))


def _band_ends(mask: AnyMask) -> Ints:
    if isinstance(mask, BlockMask):
        of_band = [] if mask.band is None else [_band_ends(mask.band)]
        ends = np.concatenate([mask.row_edges[:-1], mask.row_edges[1:] - 1, *of_band])
    else:
        q0, q1 = mask.bands.q0, mask.bands.q1
        ends = np.concatenate([q0 - 1, q0, q1 - 1, q1])
    return np.unique(ends[(ends >= 0) & (ends < mask.seqlen_q)])


def _edges_of(mask: AnyMask, rows: Ints) -> Ints:
    if isinstance(mask, BlockMask):
        edges = _spaced(mask.col_edges[:-1], MOST_LOUD_BLOCKS)
        of_band = [] if mask.band is None else [_edges_of(mask.band, rows)]
        keys = np.concatenate([edges - 1, edges, *of_band])
    else:
        starts, ends = (bound[:, rows].ravel() for bound in mask.row_intervals())
        starts, ends = starts[ends > starts], ends[ends > starts]
        keys = np.concatenate([starts - 1, starts, ends - 1, ends])
    return np.unique(keys[(keys >= 0) & (keys < mask.seqlen_k)]).astype(np.int64)


def _spaced(sorted_rows: Ints, most: int) -> Ints:
    """At most so many of them, evenly."""
    if len(sorted_rows) <= most:
        return sorted_rows
    return np.asarray(sorted_rows[np.linspace(0, len(sorted_rows) - 1, most).astype(np.int64)])
