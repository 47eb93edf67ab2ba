"""Where the values of a *chunk* lie: the 64 x 64 fp32 values of dQ that one warp group computes, in the order in which it holds them.

That order is: 8 groups of 8 columns; 4 warps, of 16 rows each; 8 rows; 4 pairs of columns; two rows, 8 apart; the two columns of a pair.
One warp turns a chunk into rows: at each step a lane makes 8 neighbouring values of one row, and lane + 16 the next 8. In each of four
loads a lane reads one pair; lanes begin with different pairs, so that a half warp reads from all banks of shared memory at once.

These functions take integers of Python and of the library's compiler alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CHUNK = 64  # rows and columns
GROUP_FLOATS = CHUNK * 8  # of 8 neighbouring columns
WARP_FLOATS = 16 * 8  # of 8 neighbouring columns and 16 rows
STEPS = CHUNK // 16  # of rows, and of columns


def first_place(lane: Any) -> Any:
    """Returns the place of the first pair that a lane needs at the first step."""
    return GROUP_FLOATS * (lane // 16) + 16 * (lane % 8) + 2 * (lane % 16 // 8)


def turn_of(lane: Any) -> Any:
    """Returns the pair with which a lane begins."""
    return lane % 8 // 2


def distance(row_step: Any, column_step: Any, pair: Any) -> Any:
    """Returns the places from a lane's first one to a pair of columns, 0 to 3, of a later step."""
    return WARP_FLOATS * row_step + 2 * GROUP_FLOATS * column_step + 4 * pair


def row_of(lane: Any, row_step: Any) -> Any:
    return 16 * row_step + lane % 16


def column_of(lane: Any, column_step: Any) -> Any:
    """Returns the first of the 8 columns that a lane makes."""
    return 16 * column_step + 8 * (lane // 16)


def in_order(pairs: list[Any], turn: Any, select: Callable[[Any, Any, Any], Any]) -> list[Any]:
    """Returns the pairs 0 to 3 from what four loads gave, the first of which read the pair `turn`: in two steps, without a branch."""
    for bit in (1, 2):
        moves = (turn & bit) != 0
        pairs = [select(moves, pairs[(k - bit) % 4], pairs[k]) for k in range(4)]
    return pairs
