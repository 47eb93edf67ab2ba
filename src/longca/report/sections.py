"""The sections of the page for one setting: charts and tables as plain data, with records known by their number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from longca.report.encoding import rounded
from longca.results.cells import Cell, make_cells, timed_rows
from longca.results.dense import dense_lines
from longca.results.naming import Contest, Row
from longca.results.points import (
    BUILDING,
    COMPILING,
    MEMORY,
    PLANNING,
    SPEED,
    TIME,
    Chart,
    Measure,
    Point,
    at_longest,
    chart,
    grouped,
    point,
    timed_lines,
)
from longca.results.record import Pass
from longca.results.shares import best_share, common_length, counted, fastest_speeds, peak_known, worst_error, worst_of
from longca.results.statuses import explaining
from longca.results.summary import joined_failures
from longca.results.tables import format_share
from longca.text import format_size

Numbers = Mapping[int, int]  # of records, by the identity of their row
Data = dict[str, Any]
BEST = "best"  # of all lengths
MOST_DENSE = 3  # lines of the dense mask beside block patterns: those that are hardest to beat


def setting_data(title: str, rows: Sequence[Row], everything: Sequence[Row], records: Numbers) -> Data:
    """All sections of one setting."""
    cells = make_cells(rows)
    panels = grouped(cells, _panel)
    lines = sorted({cell.line for cell in cells if cell.timed})
    ran = sorted({cell.line for cell in cells if cell.ran})
    return {
        "title": title,
        "lines": lines,
        "untimed": sorted({cell.line for cell in cells} - set(lines)),
        "ran": ran,
        "lengths": sorted({cell.seqlen for cell in cells if cell.ran}) if lines else [],
        "cards": [_card(panel, group, panels[panel], ran, records) for panel, group in grouped(rows, _panel).items()],
        "scaling": _scaling(rows, everything, records),
        "shares": _shares(rows, cells, lines, list(panels), records),
        "errors": _errors(cells, lines, panels, records),
        "memory": _memory(cells, lines, records),
        "preparing": _preparing(cells, lines, records),
    }


_panel, _pass = attrgetter("panel"), attrgetter("pass_")
_line_and_length = attrgetter("line", "seqlen")


def _card(panel: str, rows: Sequence[Row], cells: Sequence[Cell], lines: Sequence[str], records: Numbers) -> Data:
    """The charts of one mask, a chart per pass, and why some kernels have no time."""
    failed = {cell.line for cell in cells if len(cell.timed) < len(cell.rows)}
    by_length = {pass_: {_line_and_length(cell): cell.rows for cell in own} for pass_, own in grouped(cells, _pass).items()}
    first = rows[0]
    return {
        "panel": panel,
        "mask": first.problem,
        "family": first.family,
        "ratio": rounded(first.ratio),
        "passes": [[pass_, _chart(chart(by_length[pass_], SPEED, lines), records)] for pass_ in Pass if pass_ in by_length],
        "words": [failure.sentence for failure in joined_failures(rows)],
        "summary": f"Why {len(failed)} of {len({cell.line for cell in cells})} have no time somewhere",
    }


def by_pass(rows: Sequence[Row]) -> dict[Pass, list[Row]]:
    """Rows by pass, forward first."""
    groups = grouped(rows, lambda row: row.record.pass_)
    return {pass_: groups[pass_] for pass_ in Pass if pass_ in groups}


def _chart(drawn: Chart, records: Numbers) -> Data:
    return {"lines": drawn.lines, "places": drawn.places, "points": [[_point(one, records) for one in line] for line in drawn.points]}


def _point(one: Point | None, records: Numbers) -> list[Any] | None:
    """[record, how many], and where there is a value: the value and, where it has one, the ends of its spread."""
    if one is None:
        return None
    data: list[Any] = [records[id(one.row)], one.records]
    if one.value is not None:
        data.append(rounded(one.value))
        data += [] if one.low is None else [rounded(one.low), rounded(one.high)]
    return data


def _scaling(rows: Sequence[Row], everything: Sequence[Row], records: Numbers) -> list[Data]:
    """Over ranks, and over the share of visible blocks, at the longest length, where there are two places or more to compare."""
    charts = []
    for x, words, field in (("ranks", "over ranks", "record.ranks"), ("ratio", "over the visible share", "ratio")):
        place, series_and_place = attrgetter(field), attrgetter("series", field)
        own = [row for row in rows if place(row) is not None]
        for (family, pass_), group in grouped(own, lambda row: (row.family, row.record.pass_)).items():
            longest = at_longest(group, lambda row: "")
            lines = timed_lines(longest, attrgetter("series"))
            if not lines or len({place(row) for row in longest}) < 2:
                continue
            title = f"{family}, {pass_}, {format_size(longest[0].record.seqlen)}, "
            by_place = grouped(longest, series_and_place)
            charts.append(_titled(title + words, x, SPEED, chart(by_place, SPEED, lines), records))
            dense = dense_lines(longest, everything, MOST_DENSE) if x == "ratio" else {}
            if dense:
                times = chart(by_place, TIME, lines)
                levels = [[point(group, TIME)] * len(times.places) for group in dense.values()]
                both = Chart([*times.lines, *dense], times.places, [*times.points, *levels])
                charts.append(_titled(f"{title}beside the dense mask", x, TIME, both, records) | {"dense": list(dense)})
    return charts


def _titled(title: str, x: str, measure: Measure, drawn: Chart, records: Numbers) -> Data:
    return {"title": title, "x": x, "unit": measure.label} | _chart(drawn, records)


Groups = Mapping[tuple[str, int], Sequence[Row]]  # rows with a time by line and length


def _costs(title: str, rows: Groups, measure: Measure, lines: Sequence[str], records: Numbers) -> list[Data]:
    """A chart over length of what was counted; none where nothing was."""
    drawn = chart(rows, measure, lines).with_values()
    return [_titled(title, "seqlen", measure, drawn, records) | {"log": True}] if drawn.lines else []


def _memory(cells: Sequence[Cell], lines: Sequence[str], records: Numbers) -> list[Data]:
    """A chart for all masks made of bands, and one for each block pattern: the size of blocks matters."""
    charts: list[Data] = []
    for pattern, group in grouped(cells, lambda cell: cell.panel if cell.rows[0].is_pattern else "").items():
        by_pass = grouped(group, _pass)
        for pass_ in (pass_ for pass_ in Pass if pass_ in by_pass):
            rows = timed_rows(by_pass[pass_], _line_and_length)
            charts += _costs(f"{pattern}, {pass_}" if pattern else pass_.value, rows, MEMORY, lines, records)
    return charts


def _preparing(cells: Sequence[Cell], lines: Sequence[str], records: Numbers) -> list[Data]:
    """Planning and compiling are the kernel's; a mask is made once for all kernels, so the lines of that chart are masks."""
    by_line = timed_rows(cells, _line_and_length)
    by_mask = timed_rows(cells, lambda cell: (cell.rows[0].problem, cell.seqlen))
    building = _costs("making the mask", by_mask, BUILDING, sorted({mask for mask, _ in by_mask}), records)
    return [
        *_costs("planning for the kernel", by_line, PLANNING, lines, records),
        *_costs("first call (compiling)", by_line, COMPILING, lines, records),
        *(drawn | {"ofMasks": True} for drawn in building),
    ]


Found = list[Any] | None  # [record, share, ...], or [record that tells why there is none]
Place = tuple[str, Pass, Any]  # line, pass and column of a table


def _table(cells: Mapping[Place, Any], lines: Sequence[str], columns: Sequence[Any]) -> list[Any]:
    """[name of line and pass, cells] per line and pass."""
    asked = {(line, pass_) for line, pass_, _ in cells}
    pairs = [(line, pass_) for line in lines for pass_ in Pass if (line, pass_) in asked]
    return [[f"{line} {pass_}", [cells.get((line, pass_, name)) for name in columns]] for line, pass_ in pairs]


def _failed(rows: Sequence[Row], records: Numbers) -> Found:
    """The first record of the journal that tells why there is no share; of rows that did not fail the first."""
    ordered = sorted(rows, key=lambda row: records[id(row)])
    row = explaining(ordered) or (ordered[0] if ordered else None)
    return None if row is None else [records[id(row)]]


def _same(rows: Sequence[Row]) -> str:
    """What stands where a mask was measured only as the same as a simpler one."""
    return f"= {rows[0].same}"


def _shares(rows: Sequence[Row], cells: Sequence[Cell], lines: Sequence[str], panels: Sequence[str], records: Numbers) -> Data:
    """Shares of the peak (of the fastest where the peak is not known) at each length, and the best of all lengths. A cell is
    [record, share], [record that tells why there is none], or text."""
    known = peak_known(rows)
    places = grouped(cells, attrgetter("line", "pass_", "panel"))
    groups: dict[str, dict[Place, list[Row]]] = {BEST: {place: [row for cell in own for row in cell.rows] for place, own in places.items()}}
    lengths = sorted({cell.seqlen for cell in cells if cell.timed})
    groups |= {str(seqlen): {} for seqlen in lengths}
    for place, own in places.items():
        for seqlen, group in _at_lengths(own, lengths).items():
            groups[str(seqlen)][place] = group
    tables = []
    for name, at_places in groups.items():
        fastest = None if known else fastest_speeds(row for own in at_places.values() for row in own)
        shares = {place: _share(own, fastest, records) or _same(own) for place, own in at_places.items()}
        tables.append([name, _table(shares, lines, panels)])
    return {"known": known, "panels": panels, "start": str(common_length(rows) or BEST), "tables": tables}


def _at_lengths(cells: Sequence[Cell], lengths: Sequence[int]) -> dict[int, list[Row]]:
    """The rows of each of the lengths, and with each what is wrong at any length."""
    wrong = [row for cell in cells for row in cell.wrong]
    here = {cell.seqlen: cell.rows for cell in cells}
    if wrong:
        return {seqlen: [*(row for row in here.get(seqlen, ()) if row not in wrong), *wrong] for seqlen in lengths}
    return {seqlen: here[seqlen] for seqlen in lengths if seqlen in here}


def _share(rows: Sequence[Row], fastest: Mapping[Contest, float] | None, records: Numbers) -> Found:
    own = counted(rows)
    share = best_share(own, fastest)
    return [records[id(share.row)], rounded(share.value)] if share else _failed(own, records)


class _Errors:
    """The worst error of each cell, found once."""

    def __init__(self, cells: Iterable[Cell], records: Numbers) -> None:
        self._worst = {cell: worst_error(cell.rows) for cell in cells}
        self._records = records

    def of(self, cells: Sequence[Cell]) -> Found:
        worst = None if any(cell.wrong for cell in cells) else worst_of(map(self._worst.__getitem__, cells))
        if worst is None:
            return _failed([row for cell in cells for row in cell.rows], self._records)
        return [self._records[id(worst.row)], rounded(worst.share), worst.tensor]

    def badness(self, cells: Iterable[Cell]) -> float:
        """For sorting: infinite where something is wrong, -1 where nothing was checked."""
        worst = worst_of(map(self._worst.__getitem__, cells))
        return math.inf if any(cell.wrong for cell in cells) else -1.0 if worst is None else worst.share

    def worst_first(self, table: list[Any], cells: Iterable[Cell]) -> list[Any]:
        groups = grouped(cells, attrgetter("line", "pass_"))
        names = {f"{line} {pass_}": self.badness(group) for (line, pass_), group in groups.items()}
        return sorted(table, key=lambda line: -names.get(line[0], -1.0))


def _errors(cells: Sequence[Cell], lines: Sequence[str], panels: Mapping[str, Sequence[Cell]], records: Numbers) -> Data:
    """The worst errors as shares of the tolerance: per mask over all lengths, and per mask at each length; the worst first."""
    own = {cell: cell if all(row.same is None for row in cell.rows) else replace(cell, rows=counted(cell.rows)) for cell in cells}
    errors = _Errors({*own, *own.values()}, records)
    checked = sorted({*lines, *(cell.line for cell in cells if cell.wrong)})
    masks = sorted(((errors.badness(group), panel) for panel, group in panels.items()), key=lambda pair: -pair[0])
    lengths = []
    for badness, panel in (pair for pair in masks if pair[0] >= 0):
        group = panels[panel]
        ran = {cell.line for cell in group if cell.ran}
        columns = sorted({cell.seqlen for cell in group})
        worst = "wrong" if badness == math.inf else format_share(badness)
        by_length = {(cell.line, cell.pass_, cell.seqlen): errors.of([cell]) for cell in group}
        table = _table(by_length, [line for line in checked if line in ran], columns)
        lengths.append([panel, worst, columns, errors.worst_first(table, group)])
    places = grouped(cells, attrgetter("line", "pass_", "panel"))
    of_masks = {place: errors.of([own[cell] for cell in group]) or _same(group[0].rows) for place, group in places.items()}
    return {"panels": list(panels), "table": errors.worst_first(_table(of_masks, checked, list(panels)), own.values()), "masks": lengths}
