"""The sections of the page for one setting: the first table, the order of kernels, the board, failures, dense levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from longca.report.frames import Frame, frame_of
from longca.report.looks import SIMULATED
from longca.report.page_cells import Numbers, PageCell, cells_of
from longca.results.dense import dense_lines
from longca.results.groups import Group, Groups, closeness
from longca.results.limits import Limits
from longca.results.naming import Row
from longca.results.points import grouped
from longca.results.problem import Pass
from longca.results.record import NEVER_RAN
from longca.results.shares import common_length
from longca.results.statuses import WORDS, Coverage, coverage
from longca.results.summary import failures
from longca.results.tables import speed_unit
from longca.text import printable

Data = dict[str, Any]
MOST_DENSE = 3  # levels of the dense mask beside block patterns: those that are hardest to beat
STATES = list(Coverage)


def setting_data(
    groups: Groups, everything: Sequence[Row], limits: Limits, records: Numbers, pictures: Mapping[str, Data], place: str
) -> Data:
    """All sections of one setting. `pictures` are by the name of a mask; `place` is what a rank runs on."""
    rows, found = groups.rows, groups.every
    frame = frame_of(rows, place)
    cells = cells_of(frame, found, limits, records)
    panels = _in_order(grouped(rows, lambda row: frame.place(row)[0]), frame)
    return {
        "title": rows[0].setting.title,
        "axis": frame.axis,
        "line": "method" if rows[0].record.method else "kernel",
        "place": place,
        "unit": speed_unit(group.ranking.standings[0].tflops for group in found if group.ranking.best),
        "panels": [[panel, pictures.get(own[0].mask_name)] for panel, own in panels.items()],
        "passes": [pass_ for pass_ in Pass if any(group.contest.pass_ is pass_ for group in found)],
        "peak": _peak(rows),
        "suffix": _suffix(rows),
        "at": _start(rows, frame),
        "matrix": [_matrix_cell(group, frame, limits, records) for group in found if group.ranking.best],
        "order": [[pass_, _order(own, frame)] for pass_, own in grouped(found, lambda group: group.contest.pass_).items()],
        "board": _board(rows, cells, frame),
        "failures": _failures(panels),
        "dense": _dense(rows, everything, frame, records),
        "cells": cells,
    }


def _start(rows: Sequence[Row], frame: Frame) -> float | None:
    """The place at which tables begin: on the axis of tokens the longest length that the most masks have, else the last place."""
    if frame.axis == "seqlen":
        return common_length(rows)
    return max((frame.place(row)[1] for row in rows if row.record.ok), default=None)


def _peak(rows: Iterable[Row]) -> float | None:
    """TFLOP/s that the device can do at most; None where it is not known."""
    known = next((row.record for row in rows if row.record.ok and row.record.times.mfu), None)
    return None if known is None or known.times.mfu is None else known.speed / known.times.mfu


def _suffix(rows: Iterable[Row]) -> str:
    """What the names of all lines end with, where everything was simulated on one cluster."""
    clusters = {row.record.simulated for row in rows}
    (cluster, *others) = clusters
    return f"{SIMULATED}{cluster}" if cluster and not others else ""


def _matrix_cell(group: Group, frame: Frame, limits: Limits, records: Numbers) -> Data:
    """The fastest kernels of one contest, and how far ahead they are."""
    panel, x = frame.place(group.first)
    best, behind = group.ranking.standings[0], group.ranking.next
    return {
        "panel": panel,
        "x": x,
        "pass": group.contest.pass_,
        "simulated": group.contest.simulated,
        "fastest": [standing.line for standing in group.ranking.equals],
        "noisy": any(standing.noisy for standing in group.ranking.equals),
        "tflops": best.tflops,
        "masks": len(best.figures),
        "ends": best.speeds,
        "next": None if behind is None else behind.line,
        "ahead": None if behind is None else 1 / behind.against_best,
        "limit": limits.share(best.nearest.records),
        "ranked": len(group.ranking.standings),
        "same": group.same,
        "records": [records[record.key] for record in reversed(best.nearest.records)],
        "colour": frame.line(group.lines[best.line][0]),
    }


def _order(found: Iterable[Group], frame: Frame) -> list[list[Any]]:
    """[kernel, its mean share of the fastest speed, the points of its curve], the closest to the fastest first."""
    contests = []
    for group in found:
        if group.ranking.best:
            shares: dict[str, float] = {}
            for line, share in group.ranking.shares.items():
                name = frame.line(group.lines[line][0])
                shares[name] = max(share, shares.get(name, 0.0))
            contests.append(shares)
    return [[name, own.mean, own.curve] for name, own in closeness(contests).items()]


def _board(rows: Sequence[Row], cells: Iterable[PageCell], frame: Frame) -> list[list[Any]]:
    """[kernel, panel, pass, state, places with a time, places, worst error, its tensor, its record] per kernel, mask and pass. Of places
    where the mask shows the same as a simpler one only errors of wrong records count."""
    here = grouped(cells, lambda cell: (cell.line, cell.panel, cell.pass_))
    board: list[list[Any]] = []
    for place, own in grouped(rows, lambda row: (frame.line(row), frame.place(row)[0], row.record.problem.pass_.value)).items():
        counted = [row.record for row in own if row.same is None or not row.record.ok] or [row.record for row in own]
        worst = max(here[place], key=lambda cell: -1.0 if cell.error is None else cell.error)
        timed = sum(cell.tflops is not None for cell in here[place])
        errors = worst.error, worst.tensor, worst.worst
        board.append([*place, STATES.index(coverage(counted)), timed, len({frame.place(row)[1] for row in own}), *errors])
    return board


def _in_order(panels: Mapping[str, list[Row]], frame: Frame) -> dict[str, list[Row]]:
    """Panels with the most places on their axis first, and else as in the journals: one that a second journal adds may have few."""
    places = {panel: len({frame.place(row)[1] for row in own}) for panel, own in panels.items()}
    return {panel: panels[panel] for panel in sorted(panels, key=lambda panel: -places[panel])}


def _failures(panels: Mapping[str, Sequence[Row]]) -> list[Data]:
    """Why cells have no time: one entry per reason, with its kernels and masks. What went wrong comes before what was never tried."""
    found = [(panel, failure) for panel, own in panels.items() for failure in failures(own)]
    entries = []
    for (status, _), group in grouped(found, lambda item: (item[1].status, item[1].pattern)).items():
        first, own = group[0][1], [failure for _, failure in group]
        entry = {
            "status": status,
            "words": WORDS[status],
            "quiet": status in NEVER_RAN,
            "reason": printable(first.reason),
            "lengths": first.lengths,
            "kernels": list(dict.fromkeys(failure.line for failure in own)),
            "passes": [pass_ for pass_ in Pass if any(pass_ in failure.passes for failure in own)],
            "masks": list(dict.fromkeys(panel for panel, _ in group)),
            "count": sum(failure.count for failure in own),
        }
        entries.append(entry)
    return sorted(entries, key=lambda entry: (entry["quiet"], -entry["count"]))


def _dense(rows: Sequence[Row], everything: Sequence[Row], frame: Frame, records: Numbers) -> list[list[Any]]:
    """[panel, pass, name, record] for the fastest kernels on the dense mask that block patterns are a part of."""
    if frame.axis != "ratio":
        return []
    groups: Mapping[tuple[str, Pass], list[Row]] = grouped(rows, lambda row: (frame.place(row)[0], row.record.problem.pass_))
    return [
        [panel, pass_, name, records[min(own, key=attrgetter("record.times.median")).record.key]]
        for (panel, pass_), group in groups.items()
        for name, own in dense_lines(group, everything, MOST_DENSE).items()
    ]
