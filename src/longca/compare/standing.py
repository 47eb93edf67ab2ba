"""One kernel against the best other of its journal, on every mask and length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longca.errors import BadInput
from longca.results.groups import Group, Groups, groups_of
from longca.results.naming import Contest
from longca.results.ranking import Entry, Out, rank
from longca.results.reading import Results
from longca.results.record import Status
from longca.results.shown import Part, Shown
from longca.results.summary import counts
from longca.results.tables import NOISY, SpeedUnit, Table, length_table, speed_unit


@dataclass(frozen=True)
class Position:
    """A kernel in one contest: the best of its variants and of all other kernels, or why its variants are out."""

    own: Entry | None
    other: Entry | None
    out: tuple[Out, ...]  # of its variants
    variants: int = 1  # that were measured

    @property
    def ratio(self) -> float | None:
        """Its speed over that of the best other."""
        return self.own.tflops / self.other.tflops if self.own and self.other else None

    def text(self, unit: SpeedUnit) -> str:
        """Returns the best of several variants, its speed and the ratio to the best other, or its statuses if it has no speed. `~` follows
        what is noisy."""
        if self.own is None:
            return ", ".join(dict.fromkeys(out.status for out in self.out))
        variant = f"{self.own.line.partition(':')[2]} " if self.variants > 1 else ""
        speed = variant + unit.text(self.own.tflops, self.own.noisy)
        if self.other is None:
            return speed
        noise = "~" if self.own.noisy or self.other.noisy else ""
        return f"{speed} {self.ratio:.2f}x{noise} of {self.other.line}"


def positions(groups: Groups, kernel: str) -> dict[Contest, Position]:
    """How a kernel, or one of its variants such as fa4:bands, stands in each contest of one device, by the rule of `results.ranking`; on
    masks that it was measured on, where it shares any with most others."""
    return {group.contest: _position(kernel, group) for group in groups.measured if not group.contest.is_split}


def _position(kernel: str, group: Group) -> Position:
    own = {row.line for row in group.rows if kernel in (row.record.kernel, row.line)}
    ranking = rank(group.ranking.entries, kept=own)
    return Position(
        next((standing for standing in ranking.standings if standing.line in own), None),
        next((standing for standing in ranking.standings if standing.line not in own), None),
        tuple(out for out in ranking.out if out.line in own),
        len(own),
    )


def tables(groups: Groups, kernel: str) -> list[Table]:
    """A table per pass and setting in which the kernel is compared with another: a row per mask, a column per length."""
    found = [(contest, positions(own, kernel)) for contest, own in groups.tables.items()]
    return [_table(kernel, contest, own) for contest, own in found if any(position.ratio is not None for position in own.values())]


def _table(kernel: str, contest: Contest, found: Mapping[Contest, Position]) -> Table:
    unit = speed_unit(position.own.tflops for position in found.values() if position.own)
    texts = {(place.mask_name, place.seqlen): text for place, position in found.items() if (text := position.text(unit))}
    signs = f"{unit.name}; x: ratio to the fastest other kernel; {NOISY}"
    return length_table(f"{kernel} against the best other kernel, {contest.title} ({signs})", texts)


@dataclass(frozen=True, repr=False)
class KernelStanding(Shown):
    """One kernel against the best other of its journal."""

    tables: list[Table]
    ok = True  # there is no before and after, so nothing can fail

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per mask of each table, with a column per length."""
        return [{"table": table.title, **dict(zip(table.columns, row, strict=True))} for table in self.tables for row in table.rows]

    def parts(self) -> list[Part]:
        return [part for table in self.tables for part in (table, "")]


def standing(results: Results, kernel: str, name: str) -> KernelStanding:
    """How a kernel stands in a journal of this name; raises BadInput where it cannot be compared there."""
    groups = groups_of(results)
    named = [row for row in groups.rows if row.record.method is None]
    known = sorted({line for row in named for line in (row.record.kernel, row.line)})
    if results.records and not known:
        advice = "`longca report` and `longca recommend --gpus` compare methods"
        raise BadInput(f"{name} has only records of many ranks, and --kernel compares kernels on one device; {advice}.")
    if kernel not in known:
        raise BadInput(f"{name} has no record of {kernel!r}; it has {', '.join(known) or 'none at all'}.")
    if shown := tables(groups, kernel):
        return KernelStanding(shown)
    own = [row.record for row in named if kernel in (row.record.kernel, row.line)]
    if not any(record.status is Status.OK for record in own):
        raise BadInput(f"{kernel} has no time in {name}: {counts(own)}; `longca export {name} --csv` has the reasons.")
    raise BadInput(f"{name} has no cell that was measured with {kernel} and another kernel; measure more kernels: --kernels all.")
