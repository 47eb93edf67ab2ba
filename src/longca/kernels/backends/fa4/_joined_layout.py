"""Where the rows of joined heads lie. These functions take integers of Python and of the library's compiler alike."""

from __future__ import annotations

from typing import Any

Layout = tuple[tuple[Any, ...], tuple[Any, ...]]  # shape and strides; a mode may itself be a tuple


def joined_layout(shape: tuple[Any, ...], stride: tuple[Any, ...], row_mode: int, head_mode: int, tile: int, joined: int) -> Layout:
    """Returns the layout of a tensor whose rows are the tiles of several heads: tile 0 of each, then tile 1 of each, and so on.

    The rows become the modes (within a tile, joined heads, tiles). The only batch, mode 0, is a static mode of 1: so a TMA descriptor of q
    has five modes, the most that it may have.
    """
    rows, row, heads, head = shape[row_mode], stride[row_mode], shape[head_mode], stride[head_mode]
    changed = {
        0: (1, 0),
        row_mode: ((tile, joined, rows // tile), (row, head, row * tile)),
        head_mode: (heads // joined, head * joined),
    }
    modes = [changed.get(mode, (shape[mode], stride[mode])) for mode in range(len(shape))]
    return tuple(size for size, _ in modes), tuple(step for _, step in modes)
