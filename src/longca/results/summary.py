"""What journals say in short: the fastest kernels per mask and pass, what failed and why, counts, errors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from longca.results.grouping import grouped
from longca.results.groups import Group, Groups
from longca.results.naming import Contest, Row
from longca.results.problem import TENSORS, Pass
from longca.results.ranking import Ranking
from longca.results.record import Record, Status
from longca.results.statuses import WORDS
from longca.results.tables import SpeedUnit, speed_unit
from longca.text import format_size, part_of, printable

REFUSED = (Status.UNSUPPORTED, Status.UNAVAILABLE)
_NUMBER = re.compile(r"\d[\d.]*(?: ?[KMGT]i?B)?")  # with its unit, which grows with it


class Speeds(NamedTuple):
    """The speeds, or the statuses, of one setting and pass."""

    contest: Contest
    unit: SpeedUnit
    lines: list[str]  # without those that are refused everywhere
    places: dict[tuple[str, int], dict[str, str]]  # texts by mask and length, then by line; of masks that some kernel takes

    @property
    def each(self) -> str:
        return f"{self.unit.name} of each rank" if self.contest.is_split else self.unit.name


def speeds(groups: Groups) -> list[Speeds]:
    """One for each setting and pass in which something is supported."""
    alike = groups.by(lambda contest: contest._replace(mask_name="", seqlen=0, ranks=1))
    return [found for contest, own in alike.items() if (found := _speeds(contest, own.measured)).places]


def _speeds(contest: Contest, groups: Sequence[Group]) -> Speeds:
    unit = speed_unit(row.record.speed for group in groups for row in group.rows if row.record.ok)
    places: dict[tuple[str, int], dict[str, str]] = {}
    for group in groups:
        if supported(group.rows):
            places.setdefault((group.first.panel, group.contest.seqlen), {}).update(_texts(group, unit))
    return Speeds(contest, unit, sorted({line for group in groups for line in supported(group.rows)}), places)


def supported(named: Iterable[Row]) -> set[str]:
    """The lines with a row that is not refused."""
    return {row.line for row in named if row.record.status not in REFUSED}


def _texts(group: Group, unit: SpeedUnit) -> dict[str, str]:
    """By line the result in one contest: the speed (`~`: noisy) and of how many masks, or its statuses."""
    statuses: dict[str, dict[str, str]] = {line: {} for line in group.lines}
    for row in group.rows:
        statuses[row.line][row.record.built.digest] = row.record.status.value
    return {line: _typical(line, own, group.ranking, unit) for line, own in statuses.items()}


def _typical(line: str, statuses: Mapping[str, str], ranking: Ranking, unit: SpeedUnit) -> str:
    own = ranking.compared.get(line)
    if own is None:
        return ", ".join(dict.fromkeys(statuses.values()))
    count, wanted = len(own.figures), len(ranking.masks or statuses)
    masks = "" if wanted == 1 else f" (n={count})" if count == wanted else f" (n={count} of {wanted})"
    masks = " (other masks)" if ranking.is_elsewhere(own) else masks
    return unit.text(own.tflops, own.noisy) + masks


class Failure(Struct, frozen=True):
    """One reason of one line. Reasons that differ in their numbers only are one, with that of the longest length."""

    status: Status
    line: str
    passes: list[Pass]
    reason: str
    lengths: str
    count: int
    example: bool  # whether there are other reasons with other numbers
    pattern: str


def failures(rows: Sequence[Row]) -> list[Failure]:
    """Why rows have no time that counts, by line and reason."""
    failed, lengths = [row for row in rows if not row.record.ok], sorted({row.record.problem.seqlen for row in rows})
    groups = grouped(failed, lambda row: (row.line, row.record.status, _NUMBER.sub("#", row.record.reason)))
    answers = []
    for (line, status, pattern), group in groups.items():
        longest = max(group, key=lambda row: row.record.problem.seqlen).record
        own, ran = {row.record.problem.seqlen for row in group}, {row.record.problem.pass_ for row in group}
        passes = [pass_ for pass_ in Pass if pass_ in ran]
        example = len({row.record.reason for row in group}) > 1
        reason = printable(longest.reason) or WORDS[status]
        answers.append(Failure(status, line, passes, reason, named_lengths(own, lengths), len(group), example, pattern))
    return answers


def named_lengths(own: Iterable[int], every: Sequence[int]) -> str:
    """Three and more lengths that follow each other are named by their ends."""
    lengths = sorted(own)
    start = every.index(lengths[0])
    gapless = len(lengths) > 2 and list(every[start : start + len(lengths)]) == lengths
    return f"{format_size(lengths[0])} to {format_size(lengths[-1])}" if gapless else ", ".join(map(format_size, lengths))


def counts(records: Iterable[Record]) -> str:
    """'5 ok, 1 oom', the most frequent status first."""
    counted = Counter(record.status.value for record in records)
    return ", ".join(f"{count} {status}" for status, count in counted.most_common()) or "nothing"


def host_bound_note(records: Iterable[Record]) -> str:
    """A sentence on times in which the host may be included; empty where there are none."""
    timed = [record.times.host_bound for record in records if record.ok]
    bound = part_of(sum(map(bool, timed)), len(timed), "time")
    return f"{bound} host_bound: the host enqueued the call too slowly and may be part of the time" if any(timed) else ""


class WorstError(NamedTuple):
    """The largest error as a share of its tolerance: infinite where the error is not finite."""

    share: float
    tensor: str
    row: Row


def worst_error(rows: Iterable[Row]) -> WorstError | None:
    """The worst error of the tensors that the rows' passes compute; of a wrong row, of all that were checked: a backward may be wrong for
    the lse that it starts from."""
    worst, worst_share = None, -1.0
    for row in rows:
        record = row.record
        check, status = record.check, record.status
        if check and (status in (Status.OK, Status.WRONG)):
            for name in TENSORS if status is Status.WRONG else record.problem.pass_.tensors:
                error = check.get(name)
                if error is not None and error.allowed is not None and (share := error.share) > worst_share:
                    worst, worst_share = (name, row), share
    return None if worst is None else WorstError(worst_share, *worst)
