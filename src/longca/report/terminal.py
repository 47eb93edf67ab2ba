"""Tables for the terminal: what a run found, and how one kernel stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from longca.compare import standing
from longca.results.dense import DenseTimes
from longca.results.metrics import median
from longca.results.naming import Contest, Row, contests, rows
from longca.results.ranking import Standing, rank_rows
from longca.results.reading import Results
from longca.results.summary import failures
from longca.results.tables import Table, format_figure, length_table
from longca.text import printable

Cell = Callable[[list[Row]], str]


def summary_tables(results: Results, own_kernels: Iterable[str] = ()) -> list[Table]:
    """What a run found: the fastest per mask and length, how kernels of one's own stand, and what was not measured."""
    named = rows(results)
    stands = [table for kernel in own_kernels for table in standing.tables(results, kernel)]
    return [table for table in (*fastest_tables(named), *stands, failure_table(named)) if table.rows]


def fastest_tables(named: Sequence[Row]) -> list[Table]:
    """Per setting and pass: for each mask a row, for each length the fastest kernel with its TFLOP/s, and those that are as fast."""
    dense = DenseTimes(named)
    patterns = any(row.is_pattern and dense.gain(row, row.record) for row in named if row.record.ok)
    unit = "TFLOP/s" + ("; x: times as fast as the dense mask" if patterns else "") + "; = as fast"
    return _by_length(named, "fastest", unit, lambda own: _winner(own, dense))


def failure_table(named: Sequence[Row]) -> Table:
    """How often each kernel gave each reason for not being measured."""
    reasons = sorted(failures(named), key=lambda reason: (reason.line, reason.status, reason.pattern))
    lines = [
        [one.line, one.status.value, str(one.count), one.lengths, f"{'e.g. ' if one.example else ''}{printable(one.reason)}"]
        for one in reasons
    ]
    return Table("not measured", ["kernel", "status", "cells", "lengths", "why"], lines)


def _by_length(named: Sequence[Row], what: str, unit: str, cell: Cell) -> list[Table]:
    """A table per setting, ranks and pass with a row per mask and a column per length; tables without any text are left out."""
    groups: dict[Contest, dict[tuple[str, int], list[Row]]] = {}
    for contest, own in contests(named).items():
        groups.setdefault(contest._replace(problem="", seqlen=0), {})[contest.problem, contest.seqlen] = own
    tables = []
    for contest, places in groups.items():
        title = f"{what}, {contest.pass_}, {contest_title(contest)} ({unit})"
        tables.append(length_table(title, {place: text for place, own in places.items() if (text := cell(own))}))
    return [table for table in tables if table.rows]


def contest_title(contest: Contest) -> str:
    """The setting, with ranks and the simulated cluster."""
    ranks = f", {contest.ranks} ranks, each" if contest.ranks else ""
    return contest.setting.title + ranks + (f", simulated on {contest.simulated}" if contest.simulated else "")


def _winner(own: list[Row], dense: DenseTimes) -> str:
    ranking = rank_rows(own)
    if ranking.best is None:
        return ""
    best, *others = ranking.equals
    masks = f" (n={len(ranking.masks)})" if len(ranking.masks) > 1 else ""
    equal = f" = {', '.join(other.title for other in others)}" if others else ""
    return f"{best.title} {format_figure(best.tflops)}{_gain(own, best, dense)}{masks}{equal}"


def _gain(own: list[Row], best: Standing, dense: DenseTimes) -> str:
    gains = [gain for record in best.records if (gain := dense.gain(own[0], record)) is not None]
    return f" {median(gains):.3g}x" if gains else ""
