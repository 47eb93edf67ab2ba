"""What journals say in short: the fastest kernels per mask and pass, how one kernel stands, what failed and why, and counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from msgspec import Struct

from longca.results.groups import Group, Groups
from longca.results.naming import Contest, Row
from longca.results.points import grouped
from longca.results.problem import Pass
from longca.results.ranking import PRACTICAL, Ranking, Standing
from longca.results.record import Record, Status
from longca.results.statuses import WORDS
from longca.results.tables import SpeedUnit, Table, speed_unit
from longca.text import format_size, part_of, printable

_NUMBER = re.compile(r"\d[\d.]*(?: ?[KMGT]i?B)?")  # with its unit, which grows with it


@dataclass(frozen=True)
class Headline:
    """The ranking at the longest length of one mask and pass at which kernels can be compared."""

    contest: Contest
    panel: str
    same: str | None
    ranking: Ranking

    @property
    def best(self) -> Standing:
        return self.ranking.standings[0]

    @property
    def length(self) -> str:
        return format_size(self.contest.seqlen) + (f" (as {self.same})" if self.same else "")

    @property
    def fastest(self) -> str:
        """The best, and all that are as fast."""
        equals = self.ranking.equals
        names = ", ".join(standing.title for standing in equals)
        if len(equals) == 1:
            return names
        close = all(standing.against_best * (1 + PRACTICAL) >= 1 for standing in equals)
        return f"{names} {f'within {100 * PRACTICAL:.0f} %' if close else 'within their spreads'}"

    @property
    def ahead(self) -> str:
        """How far ahead of the next one the best is."""
        behind = self.ranking.next
        if behind is None:
            return "no other" if len(self.ranking.standings) > 1 else "the only one"
        times = 1 / behind.against_best
        return f"{times:.{3 if times < 1.1 else 2}f}× {behind.title}"  # 1.03 would look like 3 %

    def cells(self, unit: SpeedUnit) -> list[str]:
        """Returns the row of a headline table, with the speed in this unit."""
        peak = "" if (share := self.best.whole.mfu) is None else f"{100 * share:.0f} %"
        return [self.panel, self.contest.pass_.value, self.length, self.fastest, self._speed(unit), peak, self.ahead]

    def _speed(self, unit: SpeedUnit) -> str:
        """The speed of the best; of several masks all work over all time, and the range."""
        low, high = map(unit.text, self.best.speeds)
        return unit.text(self.best.tflops) + (f" ({low} to {high})" if len(self.best.figures) > 1 else "")


def headline_table(title: str, lines: Sequence[Headline]) -> Table:
    """Returns a row per headline, with speeds in the unit that fits all of them."""
    unit = speed_unit(line.best.tflops for line in lines)
    return Table(title, ["mask", "pass", "length", "fastest", unit.name, "of peak", "ahead of"], [line.cells(unit) for line in lines])


def headlines(groups: Groups) -> list[Headline]:
    """Per mask and pass; masks in the order of the journal. What was simulated is never compared with what was measured."""
    lengths = grouped(groups.measured, lambda group: group.contest._replace(seqlen=0))
    best = [line for own in lengths.values() if (line := _headline(own))]
    order = {panel: number for number, panel in enumerate(dict.fromkeys((line.contest.setting, line.panel) for line in best))}
    passes = list(Pass)
    return sorted(best, key=lambda line: (order[line.contest.setting, line.panel], passes.index(line.contest.pass_)))


def _headline(groups: Sequence[Group]) -> Headline | None:
    ranked = [group for group in groups if group.ranking.best]
    longest = max(ranked, key=lambda group: group.contest.seqlen, default=None)
    return Headline(longest.contest, longest.first.panel, longest.same, longest.ranking) if longest else None


def typical_speeds(group: Group, unit: SpeedUnit) -> dict[str, str]:
    """Returns by line the result in one contest: the speed (`~`: noisy) and of how many masks, or its statuses."""
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


@lru_cache(maxsize=65536)
def _pattern(reason: str) -> str:
    return _NUMBER.sub("#", reason)


def failures(rows: Sequence[Row]) -> list[Failure]:
    """Why rows have no time that counts, by line and reason."""
    failed, lengths = [row for row in rows if not row.record.ok], sorted({row.record.problem.seqlen for row in rows})
    groups = grouped(failed, lambda row: (row.line, row.record.status, _pattern(row.record.reason)))
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
