"""Shares of the device's peak or of the fastest kernel, and errors as shares of the tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from longca.results.metrics import mean_speed
from longca.results.naming import Contest, Row, contests
from longca.results.points import grouped
from longca.results.problem import TENSORS, Pass
from longca.results.ranking import rank_rows
from longca.results.record import OK, WRONG


class Share(NamedTuple):
    """A part of 1 (of the peak, or of the fastest speed), and the length at which a kernel has it."""

    value: float
    seqlen: int


class WorstError(NamedTuple):
    """The largest error as a share of its tolerance: infinite where the error is not finite."""

    share: float
    tensor: str
    row: Row


_TENSORS = {pass_: pass_.tensors for pass_ in Pass}


def is_wrong(rows: Iterable[Row]) -> bool:
    return any(row.record.status is WRONG for row in rows)


def counted(rows: Iterable[Row]) -> list[Row]:
    """Rows without those where the mask shows the same as a simpler one: a kernel that can do only the simpler mask runs there too."""
    return [row for row in rows if row.same is None or row.record.status is WRONG]


def peak_known(rows: Iterable[Row]) -> bool:
    return any(row.record.timed and row.record.timed.mfu is not None for row in rows)


def fastest_speeds(rows: Iterable[Row]) -> dict[Contest, float]:
    """The highest speed of a kernel per contest of any length, where the mask is not the same as a simpler one."""
    timed = [row for row in rows if row.record.ok and row.same is None]
    best: dict[Contest, float] = {}
    for (contest, _), own in grouped(timed, lambda row: (row.contest, row.line)).items():
        place = contest._replace(seqlen=0)
        speed = mean_speed([row.record.speed for row in own], [row.record.times.median for row in own])
        best[place] = max(best.get(place, 0.0), speed)
    return best


def best_share(rows: Sequence[Row], fastest: Mapping[Contest, float] | None) -> Share | None:
    """The largest share of the device's peak at any length; given the fastest speeds, of those. None where a row is wrong: a speed of a
    kernel that may be wrong says nothing."""
    if is_wrong(rows):
        return None
    values: dict[Contest, list[tuple[float, float]]] = {}  # shares, each with its time
    for row in rows:
        if row.record.status is OK and row.same is None:
            value = row.record.times.mfu if fastest is None else row.record.speed / fastest[row.contest._replace(seqlen=0)]
            if value is not None:
                values.setdefault(row.contest, []).append((value, row.record.times.median))
    shares = [Share(mean_speed(*zip(*own, strict=True)), contest.seqlen) for contest, own in values.items()]
    return max(shares, key=lambda share: share.value, default=None)


def at_length(rows: Iterable[Row], seqlen: int) -> list[Row]:
    """The rows of one length, and what is wrong at any length."""
    return [row for row in rows if row.record.problem.seqlen == seqlen or row.record.status is WRONG]


def longest_timed(rows: Sequence[Row]) -> dict[str, tuple[int, list[Row]]]:
    """By panel the longest length at which anything was timed, and the rows of that length."""
    groups = {}
    for panel, group in grouped(rows, lambda row: row.panel).items():
        longest = max(row.record.problem.seqlen for row in [row for row in group if row.record.ok] or group)
        groups[panel] = longest, at_length(group, longest)
    return groups


def compared(rows: Sequence[Row]) -> list[Row]:
    """The rows without times that a ranking does not count: those on masks on which it does not compare kernels, and all but one of several
    records of a kernel on a mask. Speeds over what is left are those of the ranking."""
    counted: set[int] = set()
    for own in contests(rows).values():
        timed = [row for row in own if row.record.ok]
        if len(timed) == len({row.line for row in timed}):  # one record each
            counted.update(id(row.record) for row in timed)
            continue
        ranking = rank_rows(own)
        counted.update(id(record) for entry in ranking.entries if (shared := ranking.compared(entry)) for record in shared.records)
    return [row for row in rows if not row.record.ok or id(row.record) in counted]


def common_length(rows: Iterable[Row]) -> int | None:
    """The longest of the lengths at which the most masks have a time."""
    panels: dict[int, set[str]] = {}
    for row in rows:
        if row.record.ok:
            panels.setdefault(row.record.problem.seqlen, set()).add(row.panel)
    return max(panels, key=lambda seqlen: (len(panels[seqlen]), seqlen), default=None)


def worst_error(rows: Iterable[Row]) -> WorstError | None:
    """The worst error of the tensors that the rows' passes compute; of a wrong row, of all that were checked: a backward may be wrong for
    the lse that it starts from."""
    worst, worst_share = None, -1.0
    for row in rows:
        record = row.record
        check, status = record.check, record.status
        if check and (status is OK or status is WRONG):
            for name in TENSORS if status is WRONG else _TENSORS[record.problem.pass_]:
                error = check.get(name)
                if error is not None and error.allowed is not None and (share := error.share) > worst_share:
                    worst, worst_share = (name, row), share
    return None if worst is None else WorstError(worst_share, *worst)
