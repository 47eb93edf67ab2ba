"""`longca.history`: the times of each cell over many journals, and where they changed."""

from __future__ import annotations

from typing import Any

from longca.api.compare import parse_threshold
from longca.api.journals import folder_of
from longca.api.shown import Part, Shown, comment
from longca.compare import history as histories
from longca.compare.describe import change, describe_all
from longca.compare.history import Line
from longca.errors import BadInput
from longca.results.ranking import PRACTICAL
from longca.results.tables import Table
from longca.text import plural

NAMES = ["kernel", "mask", "length", "pass", "shape"]


class History(Shown):
    """One row per cell and journal, with the steps."""

    def __init__(self, history: histories.History) -> None:
        self.history = history

    @property
    def ok(self) -> bool:
        """Whether no cell became slower, in a step or little by little."""
        return not any(line.slower for line in self.history.lines)

    @property
    def rows(self) -> list[dict[str, Any]]:
        named = zip(self.history.lines, self._names(), strict=True)
        return [row for line, name in named for row in self._rows(line, name)]

    def _names(self) -> list[list[str]]:
        return describe_all([line.cell for line in self.history.lines])

    def _rows(self, line: Line, name: list[str]) -> list[dict[str, Any]]:
        return [
            dict(zip(NAMES, name, strict=True))
            | {"commit": self.history.commits[number], "ms": record.times.median if record.ok else None}
            | {"ratio": ratio.value if (ratio := line.change(number)) else None, "step": self._step(line, number)}
            for number, record in enumerate(line.records)
            if record is not None
        ]

    def _step(self, line: Line, number: int) -> str:
        """What is to be said of one cell in one journal."""
        plateaus, words = line.plateaus, []
        if number in plateaus.steps:
            step = plateaus.steps[number]
            words.append(f"{step.verdict} {change(step.ratio)[0]} ({change(step.ratio)[1]})")
        if number in plateaus.creeps:
            first, crept = plateaus.creeps[number]
            words.append(f"crept {change(crept.ratio)[0]} since {self.history.commits[first]}, a little with every run")
        if number in plateaus.outliers:
            words.append("outlier: the runs before and after it agree")
        return "; ".join([*words, *([line.left_out[number]] if number in line.left_out else [])])

    def markdown(self, everything: bool = False) -> str:
        """As a comment on a pull request."""
        return comment(self.parts(everything))

    def parts(self, everything: bool = False) -> list[Part]:
        """The cells that changed, or all, with a line for each journal; and how many there are."""
        lines, history = self.history.lines, self.history
        shown = [
            [*name, row["commit"], "" if row["ms"] is None else f"{row['ms']:.4g} ms", _percent(row["ratio"]), row["step"]]
            for line, name in zip(lines, self._names(), strict=True)
            if everything or line.changed
            for row in self._rows(line, name)
        ]
        table: list[Part] = [Table("", [*NAMES, "commit", "time", "change", "step"], shown), ""] if shown else []
        slower = sum(line.slower for line in lines)
        changed = sum(line.changed for line in lines)
        overlooked = [f"compared anyway: {difference}" for difference in history.differences]
        counts = f"{plural(len(lines), 'cell')} in {plural(len(history.commits), 'journal')}: {changed} changed, {slower} of them to slower"
        return [*table, *overlooked, *history.busy, *self._left_out(everything), counts]

    def _left_out(self, everything: bool) -> list[str]:
        """A sentence on times that are no part of a plateau, where the journals' own sentences do not say so."""
        lines = self.history.lines
        count = sum(len(line.left_out) for line in lines)
        if not count or self.history.busy:
            return []
        total = sum(record is not None for line in lines for record in line.records)
        hint = "" if everything else "; --all shows why"
        return [f"{count} of {plural(total, 'time')} were not compared: they are missing, doubtful, unsteady or of too few samples{hint}."]


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def history(*journals: Any, threshold: float | str = PRACTICAL, force: bool = False) -> History:
    """Returns the times of each cell in each of these journals, in the given order, and the steps between plateaus.

    A folder that contains journals means all of them, in the order of their names. Changes below `threshold` are not steps.

    >>> longca.history("bench/history").ok
    """
    if not journals:
        raise BadInput("name the folders of journals, oldest first, or a folder that holds them.")
    return History(histories.history([folder_of(journal) for journal in journals], parse_threshold(threshold), force))
