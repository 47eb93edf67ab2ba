"""Where the rows of joined heads lie, and how thread blocks are numbered.

`joined_layout` takes integers of Python and of the library's compiler alike.
"""

from __future__ import annotations

from typing import Any

Layout = tuple[tuple[Any, ...], tuple[Any, ...]]  # shape and strides; a mode may itself be a tuple
TILE_BITS = 20  # the number of a thread block is its key tile + 2^20 * its head, in 31 bits


def joined_layout(shape: tuple[Any, ...], stride: tuple[Any, ...], row_mode: int, head_mode: int, tile: int, joined: int) -> Layout:
    """Returns the layout of a tensor whose rows are those of several heads, one whole head after the other.

    The rows become the modes (within a tile, tiles, joined heads). The only batch, mode 0, is a static mode of 1: so a TMA descriptor of q
    has five modes, the most that it may have.
    """
    rows, row, heads, head = shape[row_mode], stride[row_mode], shape[head_mode], stride[head_mode]
    changed = {
        0: (1, 0),
        row_mode: ((tile, rows // tile, joined), (row, row * tile, head)),
        head_mode: (heads // joined, head * joined),
    }
    modes = [changed.get(mode, (shape[mode], stride[mode])) for mode in range(len(shape))]
    return tuple(size for size, _ in modes), tuple(step for _, step in modes)
