"""Tables for the terminal: the results of a run, and how one kernel compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from longca.compare import standing
from longca.results.grouping import gains
from longca.results.groups import Group, Groups, groups_of
from longca.results.naming import Row
from longca.results.reading import Results
from longca.results.shown import Part
from longca.results.summary import counts, failures
from longca.results.tables import FEW, NOISY, SpeedUnit, Table, length_table, speed_unit
from longca.text import plural

MARKS = {"~": NOISY, "?": FEW, " = ": "=: equally fast"}


def summary_tables(results: Results, own_kernels: Iterable[str] = ()) -> list[Table]:
    """Returns the results of a run: the fastest per mask and length, how the user's own kernels compare, and what was not measured."""
    groups = groups_of(results)
    stands = [table for kernel in own_kernels for table in standing.tables(groups, kernel)]
    return [table for table in (*fastest_tables(groups), *stands, failure_table(groups.rows)) if table.rows]


def summary_parts(results: Results, own_kernels: Iterable[str] = ()) -> list[Part]:
    """The tables, each followed by an empty line, and how many cells there are of each status."""
    tables = [part for table in summary_tables(results, own_kernels) for part in (table, "")]
    return [*tables, f"{plural(len(results.records), 'cell')}: {counts(results.records)}"]


def fastest_tables(groups: Groups) -> list[Table]:
    """Returns a table per setting, ranks and pass: for each mask a row, for each length the fastest kernel, its speed, and its equals."""
    faster = gains(groups.rows)
    tables = []
    for contest, own in groups.tables.items():
        timed = [row for row in own.rows if row.record.ok]
        unit = speed_unit(row.record.speed for row in timed)
        ranked = [group for group in own.measured if group.ranking.best]
        texts = {(group.contest.mask_name, group.contest.seqlen): _winner(group, faster, unit) for group in ranked}
        patterns = any(row.record.key in faster for row in timed)
        tables.append(length_table(f"fastest, {contest.title} ({'; '.join([unit.name, *_senses(texts.values(), patterns)])})", texts))
    return [table for table in tables if table.rows]


def _senses(texts: Iterable[str], patterns: bool) -> list[str]:
    """Returns what the marks in these texts mean."""
    given = [sense for mark, sense in MARKS.items() if any(mark in text for text in texts)]
    return [*given, "x: speed-up over the dense mask"] if patterns else given


def failure_table(named: Sequence[Row]) -> Table:
    """Returns how many cells of each kernel were not measured, by reason."""
    reasons = sorted(failures(named), key=lambda reason: (reason.line, reason.status, reason.pattern))
    lines = [[one.line, one.status.value, str(one.count), one.lengths, f"{'e.g. ' if one.example else ''}{one.reason}"] for one in reasons]
    return Table("not measured", ["kernel", "status", "cells", "lengths", "why"], lines)


def _winner(group: Group, faster: Mapping[str, float], unit: SpeedUnit) -> str:
    best, *others = group.ranking.equals
    masks = f" (n={len(group.ranking.masks)})" if len(group.ranking.masks) > 1 else ""
    equal = f" = {', '.join(other.title for other in others)}" if others else ""
    own = [faster[record.key] for record in best.records if record.key in faster]
    speedup = f" {median(own):.3g}x" if own else ""
    few = "?" if best.few else ""
    return f"{best.line} {unit.text(best.tflops, best.noisy)}{few}{speedup}{masks}{equal}"
