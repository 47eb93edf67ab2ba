"""What the page shows of a setting, by place on its axis: a cell per kernel, the fastest kernels, and a board of kernels and masks. Records
are known by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from longca.results.frames import Frame
from longca.results.grouping import dense_lines, grouped
from longca.results.groups import Group, closeness
from longca.results.limits import Limits
from longca.results.naming import Row
from longca.results.problem import Pass
from longca.results.ranking import Entry, Ranking
from longca.results.statuses import Coverage, coverage
from longca.results.summary import worst_error

NONE = -1  # where a cell has no such record
STATES = list(Coverage)
MOST_DENSE = 3  # levels of the dense mask beside block patterns: those that are hardest to beat
Numbers = Mapping[str, int]  # of records, by their key


class PageCell(Struct, frozen=True, rename={"pass_": "pass"}):
    """One kernel at one place. Several masks (seeds) make one cell: the mean time over those on which kernels are compared, all work over
    all time, and the records of the mask whose speed is nearest to that."""

    panel: str
    line: str
    pass_: str
    x: float
    failed: int = NONE  # the record that says why a mask has no time
    close: float | None = None  # share of the fastest speed at this place
    error: float | None = None  # the worst, as a share of the tolerance
    tensor: str | None = None
    worst: int = NONE  # the record of that error
    record: int = NONE  # of the time; of a forward and a backward together that of the backward
    second: int = NONE  # the forward of such a pair
    masks: int = 0  # that its time is of
    compared: int = 0  # masks on which kernels are compared; 0 where this kernel has none of them
    tflops: float | None = None
    ms: float | None = None
    speeds: tuple[float, float] | None = None  # the ends over several masks
    times: tuple[float, float] | None = None
    limit: float | None = None  # share of the speed that tiles allow


def cells_of(frame: Frame, found: Iterable[Group], limits: Limits, records: Numbers) -> list[PageCell]:
    """All cells of one setting. Where a line stands for several grids, the fastest of them."""
    cells: dict[tuple[object, ...], PageCell] = {}
    for group in found:
        (panel, x), pass_ = frame.place(group.first), group.contest.pass_.value
        shares, measured = group.ranking.shares, group.measured
        for entry in group.ranking.entries:
            place = panel, frame.line(group.lines[entry.line][0]), pass_, x
            worst = worst_error(measured.get(entry.line, ()))
            cell = PageCell(
                *place,
                failed=NONE if entry.failed is None else records[entry.failed.key],
                close=shares.get(entry.line),
                error=None if worst is None else worst.share,
                tensor=None if worst is None else worst.tensor,
                worst=NONE if worst is None else records[worst.row.record.key],
            )
            cell = _with_time(cell, entry, group.ranking, limits, records)
            if place not in cells or (cell.tflops or 0.0) > (cells[place].tflops or 0.0):
                cells[place] = cell
    return list(cells.values())


def _with_time(cell: PageCell, entry: Entry, ranking: Ranking, limits: Limits, records: Numbers) -> PageCell:
    """The cell with the speed, the mean time and their ends, if the kernel has a time there."""
    own = ranking.compared.get(entry.line)
    if own is None:
        return cell
    masks, nearest = len(own.figures), own.nearest.records
    second, first = (NONE, *[records[record.key] for record in nearest])[-2:]
    return replace(
        cell,
        record=first,
        second=second,
        masks=masks,
        compared=0 if ranking.is_elsewhere(entry) else len(ranking.masks) or masks,
        tflops=own.tflops,
        ms=own.ms,
        speeds=own.speeds if masks > 1 else None,
        times=own.times if masks > 1 else None,
        limit=limits.share(nearest),
    )


def fastest_of(frame: Frame, found: Iterable[Group], limits: Limits, records: Numbers) -> list[dict[str, Any]]:
    """The fastest kernels of each contest, and how far ahead they are."""
    return [_fastest(group, frame, limits, records) for group in found if group.ranking.best]


def _fastest(group: Group, frame: Frame, limits: Limits, records: Numbers) -> dict[str, Any]:
    (panel, x), ranking = frame.place(group.first), group.ranking
    best, behind = ranking.standings[0], ranking.next
    return {
        "panel": panel,
        "pass": group.contest.pass_,
        "x": x,
        "simulated": group.contest.simulated,
        "same": group.same,  # a simpler mask that shows the same pairs
        "fastest": [standing.line for standing in ranking.equals],  # the best, and all that are as fast
        "noisy": any(standing.noisy for standing in ranking.equals),
        "few": any(standing.few for standing in ranking.equals),  # samples
        "tflops": best.tflops,
        "masks": len(best.figures),
        "ends": best.speeds,
        "next": None if behind is None else behind.line,
        "ahead": None if behind is None else 1 / behind.against_best,
        "ranked": len(ranking.standings),
        "limit": limits.share(best.nearest.records),
        "records": [records[record.key] for record in reversed(best.nearest.records)],
        "colour": frame.line(group.lines[best.line][0]),
    }


def order_of(frame: Frame, found: Iterable[Group]) -> list[list[Any]]:
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


def board_of(frame: Frame, rows: Sequence[Row], cells: Iterable[PageCell]) -> list[list[Any]]:
    """[kernel, mask, pass, the number of its state, places with a time, places, its worst error, of which tensor, of which record]. Of
    places where the mask shows the same as a simpler one only errors of wrong records count."""
    here = grouped(cells, lambda cell: (cell.line, cell.panel, cell.pass_))
    board = list[list[Any]]()
    for place, own in grouped(rows, lambda row: (frame.line(row), frame.place(row)[0], row.record.problem.pass_.value)).items():
        counted = [row.record for row in own if row.same is None or not row.record.ok] or [row.record for row in own]
        worst = max(here[place], key=lambda cell: -1.0 if cell.error is None else cell.error)
        timed, places = sum(cell.tflops is not None for cell in here[place]), len({frame.place(row)[1] for row in own})
        board.append([*place, STATES.index(coverage(counted)), timed, places, worst.error, worst.tensor, worst.worst])
    return board


def panels_of(frame: Frame, rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Panels with the most places on their axis first, and else as in the journals: one that a second journal adds may have few."""
    panels = grouped(rows, lambda row: frame.place(row)[0])
    places = {panel: len({frame.place(row)[1] for row in own}) for panel, own in panels.items()}
    return {panel: panels[panel] for panel in sorted(panels, key=lambda panel: -places[panel])}


def start_of(frame: Frame, rows: Sequence[Row]) -> float | None:
    """The place at which tables begin: on the axis of tokens the longest length that the most masks have, else the last place."""
    panels: dict[float, set[str]] = {}
    for row in rows:
        if row.record.ok:
            panels.setdefault(frame.place(row)[1], set()).add(row.panel)
    return max(panels, key=lambda x: (len(panels[x]) if frame.axis == "seqlen" else 0, x), default=None)


def peak_of(rows: Iterable[Row]) -> float | None:
    """TFLOP/s that the device can do at most; None where it is not known."""
    known = next((row.record for row in rows if row.record.ok and row.record.times.mfu), None)
    return None if known is None or known.times.mfu is None else known.speed / known.times.mfu


def dense_of(frame: Frame, rows: Sequence[Row], everything: Sequence[Row], records: Numbers) -> list[list[Any]]:
    """[panel, pass, name, record] for the fastest kernels on the dense mask that block patterns are a part of."""
    if frame.axis != "ratio":
        return []
    groups: Mapping[tuple[str, Pass], list[Row]] = grouped(rows, lambda row: (frame.place(row)[0], row.record.problem.pass_))
    return [
        [panel, pass_, name, records[min(own, key=attrgetter("record.times.median")).record.key]]
        for (panel, pass_), group in groups.items()
        for name, own in dense_lines(group, everything, MOST_DENSE).items()
    ]
