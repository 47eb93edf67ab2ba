"""Which rows a check samples, and at which keys its data is loud.

Up to 512 tokens it looks at every row. Beyond, looking at some is enough, and cheap at any length: about one in every tile of 64 rows,
and the rows at the ends of bands. Mistakes live at edges, also at those of a kernel's own tiles, so the row of a tile is its first, its
last or any, each as often in the first as in the second half of tiles of 128. Besides, each place in tiles of 128 has a row, and so has
each place in tiles of 64. dout is zero elsewhere, so the gradients of all keys come from these rows alone.

A key that is dropped or added at the end of an interval of 100,000 keys changes plain data less than bf16 rounding does. So there
is a second data set with loud edges: V is 64 times larger at the keys just inside and just outside the intervals of some rows. In one
row of four of that data set q is 32 times larger, so that scores reach 100 and more. Such a row shows little of its other keys, so none
is the first or the last of a tile.

Which rows are sampled depends on the mask: several masks of one length together look at several times as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from longca.masks import AnyMask, BlockMask

TILE = 64
LOUD = 64.0
SHARP, SHARP_EVERY, FIRST_SHARP = 32.0, 4, 2  # times q, in one row of how many, and the first of them: none is at an edge of a tile
ALL_ROWS = 512  # tokens up to which every row is looked at: a reference takes a CPU seconds there, at most
LEAST_ROWS = 64  # in short sequences a tile has both edges looked at, so that rows are no fewer
PLACES = 128  # rows of a tile: one row is looked at for each place in it
MOST_BAND_ENDS = 2048
MOST_LOUD_ROWS = 256
MOST_LOUD_BLOCKS = 256

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SampledRows:
    rows: Ints  # that are looked at, sorted
    few: Ints  # those of them that have a gradient in the plain data set: not all, as rows without one are looked at too
    loud_keys: Ints  # sorted
    seen: Ints  # what each of the rows sees, see `seen_keys`

    def with_gradient(self, data_set: str) -> Ints:
        """The rows whose dout is not 0 in a data set."""
        return self.few if data_set == "plain" else self.rows


def sample_rows(mask: AnyMask, seed: int = 0, every: bool = False) -> SampledRows:
    """The rows to look at: `every` one, or some of a long sequence."""
    rng = Random(f"rows/{seed}/{mask.digest}")
    short = every or mask.seqlen_q <= ALL_ROWS
    spread = _anywhere(mask.seqlen_q, rng) if short else _at_tiles(mask.seqlen_q, rng)
    ends, places = _spaced(_band_ends(mask), MOST_BAND_ENDS), spread[:0] if short else _at_every_place(mask.seqlen_q, rng)
    few = np.unique(np.concatenate([spread, ends, places]))
    rows = np.arange(mask.seqlen_q) if short else few
    loud_rows = np.unique(np.concatenate([_spaced(spread, MOST_LOUD_ROWS // 2), _spaced(ends, MOST_LOUD_ROWS // 2)]))
    return SampledRows(rows, few, _edges_of(mask, loud_rows), seen_keys(mask, rows))


def _anywhere(length: int, rng: Random) -> Ints:
    """One row in every few, 64 or more in all where there are so many."""
    size = max(2, length // LEAST_ROWS)  # 2 and more: some rows must stay without gradient
    return np.array([start + rng.randrange(min(size, length - start)) for start in range(0, length, size)], np.int64)


def _at_tiles(length: int, rng: Random) -> Ints:
    """One row in every tile or, where tiles are few, both edges.

    Six tiles in a row have each kind of row once in an even tile and once in an odd one, so a kernel's tiles of 128 show both edges too.
    In which order is drawn: a fixed one would always miss the same tiles of other sizes.
    """
    starts = range(0, length, TILE)
    kinds: tuple[list[str], list[str]] = ([], [])  # yet to come, of even and of odd tiles
    rows = list[int]()
    for tile, start in enumerate(starts):
        last = min(start + TILE, length) - 1
        if len(starts) < LEAST_ROWS:
            rows += [start, last]
            continue
        coming = kinds[tile % 2]
        if not coming:
            coming += rng.sample(("first", "last", "any"), 3)
        rows.append({"first": start, "last": last, "any": rng.randint(start, last)}[coming.pop()])
    return np.array(rows, np.int64)


def _at_every_place(length: int, rng: Random) -> Ints:
    """One row for each place in tiles of 128 rows: a row that is wrong in every tile is seen whatever its place. The tiles are drawn, and
    spread over the sequence."""
    tiles, turns = length // PLACES, rng.sample(range(PLACES), PLACES)
    return np.array([turn * tiles // PLACES * PLACES + place for place, turn in enumerate(turns)], np.int64)


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
        seen = seen_keys(mask, rows)
        starts, ends = seen[:, 0].ravel(), seen[:, 1].ravel()
        starts, ends = starts[ends > starts], ends[ends > starts]
        keys = np.concatenate([starts - 1, starts, ends - 1, ends])
    return np.unique(keys[(keys >= 0) & (keys < mask.seqlen_k)]).astype(np.int64)


def seen_keys(mask: AnyMask, rows: Ints) -> Ints:
    """[intervals, 2, rows]: first and last + 1 of the keys that each of these rows sees; no intervals where blocks are seen."""
    if isinstance(mask, BlockMask):
        return np.zeros((0, 2, len(rows)), np.int64)
    return np.stack([bound[:, rows] for bound in mask.row_intervals()], 1).astype(np.int64)


def _spaced(sorted_rows: Ints, most: int) -> Ints:
    """At most so many of them, evenly."""
    if len(sorted_rows) <= most:
        return sorted_rows
    return np.asarray(sorted_rows[np.linspace(0, len(sorted_rows) - 1, most).astype(np.int64)])
