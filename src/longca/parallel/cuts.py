"""What the rows of every shard see of the keys of every other shard: numbers about all cuts of a mask at once, without making one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from longca.masks import AnyMask, Mask
from longca.masks.bands import Ints, as_ranges, cut_rows, tokens_before
from longca.masks.tiles import per_row_tile
from longca.parallel.ranges import Ranges, Shards, cut, joined, seen_keys

TILE = 128  # rows and keys of the tiles that are counted
REMEMBERED = 8  # tables; those of the two directions of a double ring and of the methods of one comparison
T = TypeVar("T")


class Cut(NamedTuple):
    """Some rows of a mask over some keys. `rows` and `keys` are what is left when empty edges are cut off, in the numbers of the cut."""

    area: int
    tiles: int  # with at least one visible pair, before empty edges are cut off; the mean over the patterns of a block mask
    rows: slice
    keys: slice
    length: int  # rows before empty edges are cut off
    make: Callable[[], AnyMask]  # the mask without its empty edges

    @property
    def is_empty(self) -> bool:
        return not self.area


def tiles_touched(mask: AnyMask) -> int:
    """The tiles with at least one visible pair."""
    tiles = mask.tiles(TILE, TILE)
    return (tiles.full + tiles.partial) // mask.heads


def once_for_all_ranks(make: Callable[..., T]) -> Callable[..., T]:
    """Returns the function with a cache of its last results by the identity of its arguments: ranks of a plan share mask and shards, and
    plans share shards that are the same. Numbers are compared by value."""
    known: OrderedDict[tuple[object, ...], tuple[tuple[object, ...], T]] = OrderedDict()

    def remembered(*args: object) -> T:
        key = tuple(arg if isinstance(arg, int) else (id(arg),) for arg in args)
        if key not in known:
            known[key] = args, make(*args)  # with its arguments, so that their identities stay theirs
            while len(known) > REMEMBERED:
                known.popitem(last=False)
        known.move_to_end(key)
        return known[key][1]

    return remembered


@once_for_all_ranks
def areas_of(mask: AnyMask, row_shards: Shards, key_shards: Shards) -> Ints:
    return mask.pair_areas(row_shards, key_shards)  # type: ignore[arg-type]  # arrays are ranges too


class Cuts:
    """Areas, touched tiles and extents of all cuts: arrays [row shards, key shards]."""

    def __init__(self, mask: Mask, row_shards: Shards, key_shards: Shards) -> None:
        self.mask, self.row_shards, self.key_shards = mask, row_shards, key_shards
        self.areas = areas_of(mask, row_shards, key_shards)
        self.tiles = _tiles(mask, row_shards, key_shards)
        self.keys = _reach([seen_keys(mask, rows) for rows in row_shards], key_shards)
        flipped = mask.transpose()
        self.rows = _reach([seen_keys(flipped, keys) for keys in key_shards], row_shards).transpose(1, 0, 2)
        self.lengths = [int((shard[:, 1] - shard[:, 0]).sum()) for shard in row_shards]

    def cut(self, row_shard: int, key_shard: int) -> Cut:
        place = (row_shard, key_shard)
        rows, keys = (slice(*map(int, extents[place])) for extents in (self.rows, self.keys))

        def make() -> AnyMask:
            whole = cut(self.mask, self.row_shards[row_shard], self.key_shards[key_shard])
            return whole.rows([(rows.start, rows.stop)]).cols([(keys.start, keys.stop)])

        return Cut(int(self.areas[place]), int(self.tiles[place]), rows, keys, self.lengths[row_shard], make)


cuts_of: Callable[[Mask, Shards, Shards], Cuts] = once_for_all_ranks(Cuts)


def _reach(seen: Sequence[Ranges], shards: Shards) -> Ints:
    """[len(seen), len(shards), 2]: the first and the last + 1 token of each shard, in its own numbers, that lies in each set of ranges."""
    reach = np.zeros((len(seen), len(shards), 2), np.int64)
    filled = [number for number, ranges in enumerate(seen) if len(ranges)]
    if not filled:
        return reach
    points = np.concatenate([seen[number] for number in filled])
    first_of = np.cumsum([0, *(len(seen[number]) for number in filled[:-1])])
    order = np.argsort(points.ravel(), kind="stable")
    sorted_points = points.ravel()[order]
    number = np.empty(len(order), np.int64)
    for column, shard in enumerate(shards):
        number[order] = tokens_before(shard[:, 0], shard[:, 1], sorted_points)
        start, end = number.reshape(-1, 2).T
        empty = end <= start
        most = np.iinfo(np.int64).max
        first = np.minimum.reduceat(np.where(empty, most, start), first_of)
        reach[filled, column, 0] = np.where(first == most, 0, first)
        reach[filled, column, 1] = np.maximum.reduceat(np.where(empty, 0, end), first_of)
    return reach


def _tiles(mask: Mask, row_shards: Shards, key_shards: Shards) -> Ints:
    """The touched tiles: for each tile of rows the keys that it sees, as ranges, and how many tiles of each shard these touch."""
    owners, tiles, ranges = [], [], []
    for number, shard in enumerate(row_shards):
        pieces, tile = per_row_tile(cut_rows(mask.bands, *as_ranges(shard, mask.seqlen_q, "row")), TILE)
        stride = mask.seqlen_k + 1  # keys of different tiles of rows are kept apart
        together = joined(np.stack([pieces.lo, pieces.hi_last], 1) + (tile * stride)[:, None])
        tiles.append(together[:, 0] // stride)
        ranges.append(together - (tiles[-1] * stride)[:, None])
        owners.append(np.full(len(together), number))
    owner, tile = np.concatenate(owners), np.concatenate(tiles)
    points = np.concatenate(ranges)
    order = np.argsort(points.ravel(), kind="stable")
    sorted_points, place = points.ravel()[order], np.empty(2 * len(points), np.int64)
    touched = np.zeros((len(row_shards), len(key_shards)), np.int64)
    for column, shard in enumerate(key_shards):
        place[order] = tokens_before(shard[:, 0], shard[:, 1], sorted_points)
        touched[:, column] = _touched(owner, tile, place.reshape(-1, 2), len(row_shards))
    return touched


def _touched(owner: Ints, tile: Ints, place: Ints, owners: int) -> NDArray[np.int64]:
    some = np.flatnonzero(place[:, 1] > place[:, 0])
    owner, tile, place = owner[some], tile[some], place[some]
    first, last = place[:, 0] // TILE, (place[:, 1] - 1) // TILE
    shared = (owner[1:] == owner[:-1]) & (tile[1:] == tile[:-1]) & (last[:-1] == first[1:])  # the tile in which the range before ends
    number = last - first + 1
    number[1:] -= shared
    return np.bincount(owner, number, owners).astype(np.int64)
