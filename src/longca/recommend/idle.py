"""Whether a question has so little work side by side that part of a GPU may be idle, as in no measured cell.

Kernels give each tile of rows to one multiprocessor. One head of 8K tokens has 64 such tiles, and an H200 has 132 multiprocessors.
"""

from __future__ import annotations

from collections.abc import Iterable

from longca.recommend.question import Question
from longca.results.limits import TILE_ROWS, tile_rows
from longca.results.problem import Pass
from longca.results.record import Record
from longca.text import plural

FILLED = 512  # tiles of rows: about four per multiprocessor of a large GPU, which fill it


def idle(question: Question, behind: Iterable[Record]) -> str:
    """Why the error is unknown where the question has fewer tiles of rows than fill a GPU, and than any of these records; empty where it
    has as many. `behind` are the records that a range follows from."""
    asked, least = row_tiles(question), min(map(row_tiles, behind), default=0)
    if asked >= min(least, FILLED):
        return ""
    tiles = f"the call has {plural(asked, 'tile')} of {TILE_ROWS} rows and the measured cells have {least} or more"
    return f"{tiles}, so part of the GPU may be idle and the times too short"


def row_tiles(shape: Question | Record) -> int:
    """How many tiles of rows a forward has; the query heads of a KV head share the rows of a tile."""
    return -(-shape.seqlen // tile_rows(Pass.FWD, shape.heads_q, shape.heads_kv)) * shape.heads_kv
