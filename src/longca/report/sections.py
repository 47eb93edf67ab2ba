"""The sections of the page for one setting: charts and tables as plain data, with records known by their number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from longca.report.encoding import rounded
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
    Names,
    Point,
    at_longest,
    chart,
    grouped,
    line_of,
    point,
    timed_lines,
)
from longca.results.record import NEVER_RAN, Pass, Status
from longca.results.shares import best_share, common_length, counted, fastest_speeds, is_wrong, peak_known, row_error, worst_of
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
    lines = timed_lines(rows)
    ran = sorted({row.line for row in rows if row.record.status not in NEVER_RAN})
    panels = grouped(rows, lambda row: row.panel)
    return {
        "title": title,
        "lines": lines,
        "untimed": sorted({row.line for row in rows} - set(lines)),
        "ran": ran,
        "lengths": sorted({row.record.seqlen for row in rows if row.record.status not in NEVER_RAN}) if lines else [],
        "cards": [_card(panel, group, ran, records) for panel, group in panels.items()],
        "scaling": _scaling(rows, everything, records),
        "shares": _shares(rows, lines, list(panels), records),
        "errors": _errors(rows, lines, panels, records),
        "memory": _memory(rows, lines, records),
        "preparing": _preparing(rows, lines, records),
    }


def _seqlen(row: Row) -> int:
    return row.record.seqlen


def _card(panel: str, rows: Sequence[Row], lines: Sequence[str], records: Numbers) -> Data:
    """The charts of one mask, a chart per pass, and why some kernels have no time."""
    failures = joined_failures(rows)
    failed = {row.line for row in rows if not row.record.ok}
    first = rows[0]
    return {
        "panel": panel,
        "mask": first.problem,
        "family": first.family,
        "ratio": rounded(first.ratio),
        "passes": [[pass_, _chart(chart(own, SPEED, lines, _seqlen), records)] for pass_, own in by_pass(rows).items()],
        "words": [failure.sentence for failure in failures],
        "summary": f"Why {len(failed)} of {len({row.line for row in rows})} have no time somewhere",
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
    for x, words, place in (("ranks", "over ranks", _ranks), ("ratio", "over the visible share", _ratio)):
        own = [row for row in rows if place(row) is not None]
        for (family, pass_), group in grouped(own, lambda row: (row.family, row.record.pass_)).items():
            longest = at_longest(group, lambda row: "")
            lines = timed_lines(longest, _series)
            if not lines or len({place(row) for row in longest}) < 2:
                continue
            title = f"{family}, {pass_}, {format_size(_seqlen(longest[0]))}, "
            charts.append(_titled(title + words, x, SPEED, chart(longest, SPEED, lines, place, _series), records))
            dense = dense_lines(longest, everything, MOST_DENSE) if x == "ratio" else {}
            if dense:
                times = chart(longest, TIME, lines, place, _series)
                levels = [[point(group, TIME)] * len(times.places) for group in dense.values()]
                both = Chart([*times.lines, *dense], times.places, [*times.points, *levels])
                charts.append(_titled(f"{title}beside the dense mask", x, TIME, both, records) | {"dense": list(dense)})
    return charts


def _ranks(row: Row) -> float | None:
    return row.record.ranks


def _ratio(row: Row) -> float | None:
    return row.ratio


def _series(row: Row) -> str:
    return row.series


def _titled(title: str, x: str, measure: Measure, drawn: Chart, records: Numbers) -> Data:
    return {"title": title, "x": x, "unit": measure.label} | _chart(drawn, records)


def _costs(
    title: str, rows: Iterable[Row], measure: Measure, lines: Sequence[str], records: Numbers, series: Names = line_of
) -> list[Data]:
    """A chart over length of what was counted; none where nothing was."""
    own = [row for row in rows if row.record.ok and measure.value(row.record) is not None]
    return [_titled(title, "seqlen", measure, chart(own, measure, lines, _seqlen, series), records) | {"log": True}] if own else []


def _memory(rows: Sequence[Row], lines: Sequence[str], records: Numbers) -> list[Data]:
    """A chart for all masks made of bands, and one for each block pattern: the size of blocks matters."""
    charts: list[Data] = []
    for pattern, group in grouped(rows, lambda row: row.panel if row.is_pattern else "").items():
        for pass_, own in by_pass(group).items():
            charts += _costs(f"{pattern}, {pass_}" if pattern else pass_.value, own, MEMORY, lines, records)
    return charts


def _preparing(rows: Sequence[Row], lines: Sequence[str], records: Numbers) -> list[Data]:
    """Planning and compiling are the kernel's; a mask is made once for all kernels, so the lines of that chart are masks."""
    masks = timed_lines(rows, lambda row: row.problem)
    building = _costs("making the mask", rows, BUILDING, masks, records, lambda row: row.problem)
    return [
        *_costs("planning for the kernel", rows, PLANNING, lines, records),
        *_costs("first call (compiling)", rows, COMPILING, lines, records),
        *(drawn | {"ofMasks": True} for drawn in building),
    ]


Cell = Callable[[Sequence[Row]], list[Any] | None]


def _table(rows: Sequence[Row], lines: Sequence[str], columns: Sequence[Any], column: Callable[[Row], Any], cell: Cell) -> list[Any]:
    """[name of line and pass, cells] per line and pass."""
    cells = grouped(rows, lambda row: (row.line, row.record.pass_, column(row)))
    asked = {(line, pass_) for line, pass_, _ in cells}
    pairs = [(line, pass_) for line in lines for pass_ in Pass if (line, pass_) in asked]
    return [[f"{line} {pass_}", [_cell(cells.get((line, pass_, name), ()), cell) for name in columns]] for line, pass_ in pairs]


def _cell(rows: Sequence[Row], cell: Cell) -> Any:
    if not rows:
        return None
    return cell(rows) or f"= {rows[0].same}"


def _failed(rows: Sequence[Row], records: Numbers) -> list[Any] | None:
    row = explaining(rows) or (rows[0] if rows else None)
    return None if row is None else [records[id(row)]]


def _shares(rows: Sequence[Row], lines: Sequence[str], panels: Sequence[str], records: Numbers) -> Data:
    """Shares of the peak (of the fastest where the peak is not known) at each length, and the best of all lengths. A cell is
    [record, share], [record that tells why there is none], or text."""
    known = peak_known(rows)

    def cell(fastest: Mapping[Contest, float] | None) -> Cell:
        def share_of(group: Sequence[Row]) -> list[Any] | None:
            own = counted(group)
            share = best_share(own, fastest)
            return [records[id(share.row)], rounded(share.value)] if share else _failed(own, records)

        return share_of

    wrong = [row for row in rows if row.record.status is Status.WRONG]
    lengths = sorted({row.record.seqlen for row in rows if row.record.ok})
    by_length = grouped((row for row in rows if row.record.status is not Status.WRONG), _seqlen)
    groups: dict[str, Sequence[Row]] = {BEST: rows} | {str(seqlen): [*by_length[seqlen], *wrong] for seqlen in lengths}
    tables = []
    for name, own in groups.items():
        fastest = None if known else fastest_speeds(own)
        tables.append([name, _table(own, lines, panels, lambda row: row.panel, cell(fastest))])
    return {"known": known, "panels": panels, "start": str(common_length(rows) or BEST), "tables": tables}


class _Errors:
    """The worst error of each row, found once."""

    def __init__(self, rows: Iterable[Row], records: Numbers) -> None:
        self._worst = {row: row_error(row) for row in rows}
        self._records = records

    def cell(self, rows: Sequence[Row]) -> list[Any] | None:
        worst = None if is_wrong(rows) else worst_of(map(self._worst.__getitem__, rows))
        return [self._records[id(worst.row)], rounded(worst.share), worst.tensor] if worst else _failed(rows, self._records)

    def badness(self, rows: Sequence[Row]) -> float:
        """For sorting: infinite where something is wrong, -1 where nothing was checked."""
        worst = worst_of(map(self._worst.__getitem__, rows))
        return math.inf if is_wrong(rows) else -1.0 if worst is None else worst.share

    def worst_first(self, table: list[Any], rows: Iterable[Row]) -> list[Any]:
        groups = grouped(rows, lambda row: (row.line, row.record.pass_))
        names = {f"{line} {pass_}": self.badness(group) for (line, pass_), group in groups.items()}
        return sorted(table, key=lambda line: -names.get(line[0], -1.0))


def _errors(rows: Sequence[Row], lines: Sequence[str], panels: Mapping[str, Sequence[Row]], records: Numbers) -> Data:
    """The worst errors as shares of the tolerance: per mask over all lengths, and per mask at each length; the worst first."""
    errors = _Errors(rows, records)
    checked = sorted({*lines, *(row.line for row in rows if row.record.status is Status.WRONG)})
    masks = sorted(((errors.badness(group), panel) for panel, group in panels.items()), key=lambda pair: -pair[0])
    lengths = []
    for badness, panel in (pair for pair in masks if pair[0] >= 0):
        group = panels[panel]
        ran = {row.line for row in group if row.record.status not in NEVER_RAN}
        columns = sorted({row.record.seqlen for row in group})
        worst = "wrong" if badness == math.inf else format_share(badness)
        table = _table(group, [line for line in checked if line in ran], columns, _seqlen, errors.cell)
        lengths.append([panel, worst, columns, errors.worst_first(table, group)])
    of_masks = _table(rows, checked, list(panels), lambda row: row.panel, lambda group: errors.cell(counted(group)))
    return {"panels": list(panels), "table": errors.worst_first(of_masks, counted(rows)), "masks": lengths}
