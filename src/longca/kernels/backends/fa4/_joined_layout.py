"""Where the rows of joined heads lie. These functions take integers of Python and of the library's compiler alike."""

from __future__ import annotations

from typing import Any

Layout = tuple[tuple[Any, ...], tuple[Any, ...]]  # shape and strides; a mode may itself be a tuple
TILES, HEADS, WHOLE_HEADS = "tiles", "heads", "whole heads"  # which query tiles of joined heads follow each other, see `_joined.Joining`
UNIT = 32  # query tiles that a converting thread block takes
HEAD_BITS = 16  # a thread block in an order of blocks: key tile + 2^16 * head


def joined_layout(
    shape: tuple[Any, ...], stride: tuple[Any, ...], row_mode: int, head_mode: int, tile: int, joined: int, order: str = TILES
) -> Layout:
    """Returns the layout of a tensor whose rows are the tiles of several heads: tile 0 of each, then tile 1 of each, and so on; or, in
    other orders than TILES, all tiles of one head, then all tiles of the next.

    The rows become the modes (within a tile, joined heads, tiles), or (within a tile, tiles, joined heads). The only batch, mode 0, is a
    static mode of 1: so a TMA descriptor of q has five modes, the most that it may have.
    """
    rows, row, heads, head = shape[row_mode], stride[row_mode], shape[head_mode], stride[head_mode]
    sizes, steps = (tile, joined, rows // tile), (row, head, row * tile)
    if order != TILES:
        sizes, steps = (tile, rows // tile, joined), (row, row * tile, head)
    changed = {0: (1, 0), row_mode: (sizes, steps), head_mode: (heads // joined, head * joined)}
    modes = [changed.get(mode, (shape[mode], stride[mode])) for mode in range(len(shape))]
    return tuple(size for size, _ in modes), tuple(step for _, step in modes)
