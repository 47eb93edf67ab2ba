"""`longca.compare`: what changed between two journals, or how one kernel of a journal stands; the command prints the same."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from longca.api.journals import folder_of
from longca.api.shown import Part, Shown, comment
from longca.compare import journals
from longca.compare.describe import change, describe_all, describe_cells, notes
from longca.compare.journals import Comparison
from longca.compare.standing import tables
from longca.compare.verdicts import Cell, Verdict, is_unsteady
from longca.errors import BadInput
from longca.results.naming import rows
from longca.results.ranking import PRACTICAL
from longca.results.reading import read
from longca.results.record import Record, Status
from longca.results.summary import counts
from longca.results.tables import Table
from longca.text import plural

COLUMNS = ["verdict", "kernel", "mask", "length", "pass", "shape", "A", "B", "time", "interval", "why"]
UNCHANGED = (Verdict.SAME, Verdict.UNMEASURED)


class Compared(Shown):
    """A verdict for each cell that two journals share, worst first."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def ok(self) -> bool:
        """Whether no cell became slower or broke."""
        return not self.comparison.fails()

    @property
    def cells(self) -> list[Cell]:
        return self.comparison.cells

    @property
    def counts(self) -> dict[Verdict, int]:
        """How many cells have each verdict."""
        return self.comparison.counts

    def fails(self, also: Iterable[str] = ()) -> bool:
        """Whether something regressed; `also` may name 'unclear' and 'missing' as failures too."""
        return self.comparison.fails(also)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per cell; cells that only one journal has are in `comparison`."""
        named = zip(self.cells, describe_cells(self.cells), strict=True)
        return [
            {
                "verdict": cell.verdict.value,
                **dict(zip(COLUMNS[1:6], name, strict=True)),
                "a_ms": cell.before.times.median if cell.before.ok else None,
                "b_ms": cell.after.times.median if cell.after.ok else None,
                "ratio": cell.ratio.value if cell.ratio else None,
                "low": cell.ratio.low if cell.ratio and cell.ratio.known else None,
                "high": cell.ratio.high if cell.ratio and cell.ratio.known else None,
                "why": cell.why,
            }
            for cell, name in named
        ]

    def markdown(self, everything: bool = False) -> str:
        """As a comment on a pull request."""
        return comment(self.parts(everything))

    def parts(self, everything: bool = False) -> list[Part]:
        """The cells that changed, or all; what only one journal has; and the counts."""
        comparison = self.comparison
        rows = [
            [cell.verdict.value, *name, _time(cell.before), _time(cell.after), *change(cell.ratio), cell.why]
            for cell, name in zip(self.cells, describe_cells(self.cells), strict=True)
            if everything or cell.verdict not in UNCHANGED
        ]
        parts: list[Part] = []
        if rows:
            used = len(COLUMNS) if any(row[-1] for row in rows) else len(COLUMNS) - 1
            parts = [Table("", COLUMNS[:used], [row[:used] for row in rows]), ""]
        for side, records in (("A", comparison.only_before), ("B", comparison.only_after)):
            parts += [f"only in {side}: {' '.join(row)}" for row in describe_all(records)]
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items() if count)
        only = f"; {plural(len(comparison.only_before), 'cell')} only in A, {len(comparison.only_after)} only in B"
        return [*parts, *notes(comparison), counts + (only if comparison.only_before or comparison.only_after else "")]


class Standing(Shown):
    """One kernel against the best other of its journal."""

    ok = True  # there is no before and after, so nothing can fail

    def __init__(self, tables: list[Table]) -> None:
        self.tables = tables

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per mask of each table, with a column per length."""
        return [{"table": table.title, **dict(zip(table.columns, row, strict=True))} for table in self.tables for row in table.rows]

    def parts(self) -> list[Part]:
        return [part for table in self.tables for part in (table, "")]


def compare(
    a: Any, b: Any = None, *, kernel: str | None = None, threshold: float | str = PRACTICAL, force: bool = False
) -> Compared | Standing:
    """Compares journal `b` with journal `a` and returns a verdict per cell: SLOWER, FASTER, SAME, UNCLEAR, BROKEN, MENDED or UNMEASURED. If
    `kernel` is given in place of `b`, compares that kernel of `a` with the best other kernel on each mask.

    Journals are folders that a run wrote, or results of `longca.run`. Changes below `threshold` are ignored. `force` compares journals even
    if devices, threads, clock settings, power limits or clocks differ.

    >>> longca.compare("out/before", "out/after").ok
    """
    if (b is None) == (kernel is None):
        raise BadInput("give two folders A and B; or one folder and --kernel NAME, to compare that kernel with the others in it.")
    if kernel is not None:
        return Standing(_standing(folder_of(a), kernel))
    return Compared(journals.compare(folder_of(a), folder_of(b), parse_threshold(threshold), force))


def _standing(folder: str, kernel: str) -> list[Table]:
    results = read(folder)
    named = [row for row in rows(results) if row.record.method is None]
    known = sorted({name for row in named for name in (row.record.kernel, row.line)})
    if results.records and not known:
        advice = "`longca report` and `longca recommend --gpus` compare methods"
        raise BadInput(f"{folder} has only records of many ranks, and --kernel compares kernels on one device; {advice}.")
    if kernel not in known:
        raise BadInput(f"{folder} has no record of {kernel!r}; it has {', '.join(known) or 'none at all'}.")
    shown = tables(results, kernel)
    if not shown:
        own = [row.record for row in named if kernel in (row.record.kernel, row.line)]
        if not any(record.status is Status.OK for record in own):
            raise BadInput(f"{kernel} has no time in {folder}: {counts(own)}; `longca export {folder} --csv` has the reasons.")
        raise BadInput(f"{folder} has no cell that was measured with {kernel} and another kernel; measure more kernels: --kernels all.")
    return shown


def _time(record: Record) -> str:
    if not record.ok:
        return record.status.value
    return f"{record.times.median:.4g} ms unsteady" if record.noisy and is_unsteady(record) else f"{record.times.median:.4g} ms"


def parse_threshold(threshold: float | str) -> float:
    """A share of the time: 0.03, "0.03" or "3%"."""
    text = str(threshold).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise BadInput(f"--threshold {threshold!r} is not understood; write a share of the time such as 3% or 0.03.")
    return value
