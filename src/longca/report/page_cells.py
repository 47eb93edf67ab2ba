"""The cells of the page: one per kernel, mask, pass and place on the axis, with records known by their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from longca.report.frames import Frame
from longca.results.groups import Group
from longca.results.limits import Limits
from longca.results.ranking import Entry, Ranking
from longca.results.shares import worst_error

NONE = -1  # where a cell has no such record
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
