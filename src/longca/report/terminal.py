"""Tables for the terminal: the results of a run, and how one kernel compares."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from longca.compare import standing
from longca.results.dense import DenseTimes
from longca.results.metrics import median
from longca.results.naming import Contest, Row, contests, rows
from longca.results.ranking import Standing, rank_rows
from longca.results.reading import Results
from longca.results.summary import failures
from longca.results.tables import NOISY, SpeedUnit, Table, length_table, speed_unit
from longca.text import printable


def summary_tables(results: Results, own_kernels: Iterable[str] = ()) -> list[Table]:
    """Returns the results of a run: the fastest per mask and length, how the user's own kernels compare, and what was not measured."""
    named = rows(results)
    stands = [table for kernel in own_kernels for table in standing.tables(results, kernel)]
    return [table for table in (*fastest_tables(named), *stands, failure_table(named)) if table.rows]


def fastest_tables(named: Sequence[Row]) -> list[Table]:
    """Returns a table per setting, ranks and pass: for each mask a row, for each length the fastest kernel, its speed, and its equals."""
    dense = DenseTimes(named)
    groups: dict[Contest, dict[tuple[str, int], list[Row]]] = {}
    for contest, own in contests(named).items():
        groups.setdefault(contest._replace(mask_name="", seqlen=0), {})[contest.mask_name, contest.seqlen] = own
    tables = []
    for contest, places in groups.items():
        unit = speed_unit(row.record.speed for own in places.values() for row in own if row.record.ok)
        texts = {place: text for place, own in places.items() if (text := _winner(own, dense, unit))}
        patterns = any(row.is_pattern and dense.gain(row, row.record) for own in places.values() for row in own if row.record.ok)
        signs = f"{unit.name}; {NOISY}; =: equally fast{'; x: speed-up over the dense mask' if patterns else ''}"
        title = f"fastest, {contest.pass_}, {contest_title(contest)} ({signs})"
        tables.append(length_table(title, texts))
    return [table for table in tables if table.rows]


def failure_table(named: Sequence[Row]) -> Table:
    """Returns how many cells of each kernel were not measured, by reason."""
    reasons = sorted(failures(named), key=lambda reason: (reason.line, reason.status, reason.pattern))
    lines = [
        [one.line, one.status.value, str(one.count), one.lengths, f"{'e.g. ' if one.example else ''}{printable(one.reason)}"]
        for one in reasons
    ]
    return Table("not measured", ["kernel", "status", "cells", "lengths", "why"], lines)


def contest_title(contest: Contest) -> str:
    """The setting, with ranks and the simulated cluster."""
    ranks = f", {contest.ranks} ranks, each" if contest.is_split else ""
    return contest.setting.title + ranks + (f", simulated on {contest.simulated}" if contest.simulated else "")


def _winner(own: list[Row], dense: DenseTimes, unit: SpeedUnit) -> str:
    ranking = rank_rows(own)
    if ranking.best is None:
        return ""
    best, *others = ranking.equals
    masks = f" (n={len(ranking.masks)})" if len(ranking.masks) > 1 else ""
    equal = f" = {', '.join(f'{other.line}~' if other.noisy else other.line for other in others)}" if others else ""
    return f"{best.line} {unit.text(best.tflops, best.noisy)}{_gain(own, best, dense)}{masks}{equal}"


def _gain(own: list[Row], best: Standing, dense: DenseTimes) -> str:
    gains = [gain for record in best.records if (gain := dense.gain(own[0], record)) is not None]
    return f" {median(gains):.3g}x" if gains else ""
