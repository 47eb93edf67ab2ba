"""Work lists of a block pattern: the tiles of keys that each row block sees, or the tiles of rows that see each key block.

Neighbouring blocks that are both kept are one run; a run is cut into tiles from its start, so only its last tile may be short.
Everything is vectorised over runs, on the device: nothing of the size of queries times keys is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from longca.kernels.lower import upload
from longca.masks import BlockMask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Lists:
    """Lists numbered head * blocks + block. List i has the whole tiles `whole_start[whole_ptr[i] : whole_ptr[i + 1]]`; short ones have a
    count."""

    whole_ptr: torch.Tensor
    whole_start: torch.Tensor
    short_ptr: torch.Tensor
    short_start: torch.Tensor
    short_count: torch.Tensor
    all_whole: bool  # no short tile in any list

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        return self.whole_ptr, self.whole_start, self.short_ptr, self.short_start, self.short_count


@dataclass(frozen=True)
class Tiles:
    """The tiles whose results are written: start, number of tokens and block of each; none spans two blocks."""

    start: torch.Tensor
    count: torch.Tensor
    block: torch.Tensor

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        return self.start, self.count, self.block


def pattern(mask: BlockMask, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (kept, row edges, key edges) on the device."""
    return upload(mask.kept, device), upload(mask.row_edges, device), upload(mask.col_edges, device)


def lists(kept: torch.Tensor, edges: torch.Tensor, tile: int) -> Lists:
    """Returns lists over the last axis of kept[head, block, other block]; `edges` cut the other axis."""
    heads, blocks, _ = kept.shape
    list_number, run_start, run_end = _runs(kept, edges)
    length = run_end - run_start
    list_ends = torch.searchsorted(list_number, torch.arange(heads * blocks + 1, device=kept.device))  # runs before each list
    whole = length // tile
    tiles_before = torch.nn.functional.pad(whole.cumsum(0), (1, 0))
    run_of_tile = torch.repeat_interleave(torch.arange(len(whole), device=kept.device), whole)
    place = torch.arange(len(run_of_tile), device=kept.device) - tiles_before[run_of_tile]
    short = length % tile > 0
    shorts_before = torch.nn.functional.pad(short.long().cumsum(0), (1, 0))
    return Lists(
        tiles_before[list_ends].int(),
        _never_empty(run_start[run_of_tile] + place * tile),
        shorts_before[list_ends].int(),
        _never_empty((run_start + whole * tile)[short]),
        _never_empty(rest := (length % tile)[short]),
        len(rest) == 0,
    )


def under_diagonal(made: Lists, own_edges: torch.Tensor, tile: int, *, tiles_are_rows: bool) -> Lists:
    """Returns the lists under a causal mask: whole tiles that it cuts become short ones, which kernels mask; hidden tiles are left out.

    `own_edges` are of the blocks that the lists belong to: rows where tiles are keys, keys where tiles are rows.
    """
    blocks, count = len(own_edges) - 1, len(made.whole_ptr) - 1
    every = torch.arange(count, device=own_edges.device)
    whole, short = (torch.repeat_interleave(every, ptr.diff()) for ptr in (made.whole_ptr, made.short_ptr))
    owner = torch.cat([whole, short])
    start = torch.cat([made.whole_start[: len(whole)], made.short_start[: len(short)]])
    length = torch.cat([torch.full_like(whole, tile), made.short_count[: len(short)]])
    last, own_first, own_last = start + length - 1, own_edges[owner % blocks], own_edges[owner % blocks + 1] - 1
    uncut, hidden = (start >= own_last, last < own_first) if tiles_are_rows else (last <= own_first, start > own_last)
    free = uncut & (length == tile)
    masked = torch.nonzero(~free & ~hidden).squeeze(1)
    masked = masked[owner[masked].argsort(stable=True)]  # those that were short come behind the others: into the order of lists
    return Lists(
        _pointers(owner[free], count),
        _never_empty(start[free]),
        _pointers(owner[masked], count),
        _never_empty(start[masked]),
        _never_empty(length[masked]),
        len(masked) == 0,
    )


def _pointers(owner: torch.Tensor, count: int) -> torch.Tensor:
    return torch.nn.functional.pad(torch.bincount(owner, minlength=count).cumsum(0), (1, 0)).int()


def _runs(kept: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Returns (list number, start, end) of each run, in the order of lists."""
    first, last = kept.clone(), kept.clone()
    first[..., 1:] &= ~kept[..., :-1]
    last[..., :-1] &= ~kept[..., 1:]
    width = kept.shape[2]
    begins, finishes = (torch.nonzero(x.flatten()).squeeze(1) for x in (first, last))
    return begins // width, edges[begins % width], edges[finishes % width + 1]


def _never_empty(x: torch.Tensor) -> torch.Tensor:
    """Returns the numbers as int32, or one unused 0 where there are none: not every launch takes a pointer to nothing."""
    return x.int() if len(x) else torch.zeros(1, dtype=torch.int32, device=x.device)


def tiles(edges: NDArray[np.int64], tile: int, device: str) -> Tiles:
    """Returns the tiles of all blocks, each cut from its start."""
    import numpy as np

    size = np.diff(edges)
    number = -(-size // tile)
    block = np.repeat(np.arange(len(size)), number)
    place = np.arange(len(block)) - np.repeat(np.cumsum(number) - number, number)
    start = edges[block] + place * tile
    count = np.minimum(edges[block + 1] - start, tile)
    return Tiles(*(upload(x.astype(np.int32), device) for x in (start, count, block)))
