"""Cells: the rows of one line on one mask, at one length and of one pass. They differ in the seed, or in what was measured with them.

Charts and tables are made of cells, so that a large journal is grouped once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from msgspec import Struct

from longca.results.naming import Row
from longca.results.points import Key, grouped
from longca.results.record import NEVER_RAN, Pass, Status


class Cell(Struct, frozen=True, eq=False, gc=False):
    """Rows that share panel, line, pass and length."""

    panel: str
    line: str
    pass_: Pass
    seqlen: int
    rows: list[Row]
    timed: list[Row]  # those with a time that counts
    wrong: list[Row]
    ran: bool  # whether any of them was tried


_place = attrgetter("panel", "line", "record.pass_", "record.seqlen")


def make_cells(rows: Iterable[Row]) -> list[Cell]:
    """The cells of some rows of one setting, in the order of the journal."""
    cells = []
    for place, own in grouped(rows, _place).items():
        timed = [row for row in own if row.record.ok]
        failed = {row.record.status for row in own} if len(timed) < len(own) else ()
        wrong = [row for row in own if row.record.status is Status.WRONG] if failed else []
        cells.append(Cell(*place, own, timed, wrong, bool(timed) or not NEVER_RAN.issuperset(failed)))
    return cells


def timed_rows(cells: Iterable[Cell], key: Callable[[Cell], Key]) -> dict[Key, list[Row]]:
    """The rows with a time of all cells that share a key."""
    groups: dict[Key, list[Row]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).extend(cell.timed)
    return groups
