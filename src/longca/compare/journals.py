"""Two journals, cell by cell: what became slower, faster, broken, or cannot be told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from longca.compare import words
from longca.compare.matching import differing_fields, match
from longca.compare.verdicts import PRACTICAL, REGRESSIONS, Cell, Verdict, is_skipped, is_too_noisy, judge
from longca.errors import BadInput
from longca.results.ratio import CONFIDENCE
from longca.results.reading import Results, identity_fields, read
from longca.results.record import Environment, Record
from longca.results.shown import Part, Shown, comment
from longca.results.versions import is_older

# the share of noisy cells above which no cell of a journal is trusted: on a CPU all cells share the machine with other work
BUSY = {"cpu": 0.1, "cuda": 0.5}
USUAL_BUSY = 0.5
CONDITIONS = {  # in env.json, with their names in messages
    "device": "the device",
    "threads": "the number of threads",
    "clock": "the clock's settings",
    "power_limit_w": "the power limit in W",
    "application_sm_mhz": "the application clock of the SMs in MHz",
    "application_memory_mhz": "the application clock of the memory in MHz",
}
MAY_BE_UNKNOWN = ("power_limit_w", "application_sm_mhz", "application_memory_mhz")  # in older journals, on CPUs, with some drivers


class Busy(NamedTuple):
    """A journal of which so many cells are noisy that the machine must have done other work: none of its cells is trusted."""

    name: str
    noisy: int
    measured: int


class Difference(NamedTuple):
    """A condition in which two journals differ, with its values in both."""

    sides: tuple[str, str]
    title: str
    values: list[tuple[Any, Any]]


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """A verdict for each cell that two journals share, worst first, and what only one of them has."""

    threshold: float
    cells: list[Cell]
    only_before: list[Record]
    only_after: list[Record]
    differences: list[Difference]  # overlooked because of --force
    busy: list[Busy]  # why nothing is called slower or faster, unless by much

    @property
    def ok(self) -> bool:
        """Whether no cell became slower or broke."""
        return not self.fails()

    @property
    def counts(self) -> dict[Verdict, int]:
        counted = Counter(cell.verdict for cell in self.cells)
        return {verdict: counted[verdict] for verdict in Verdict}

    def fails(self, also: Iterable[str] = ()) -> bool:
        """Whether something regressed; `also` may name 'unclear' and 'missing' as failures too."""
        counts, wanted = self.counts, set(also)
        regressed = any(counts[verdict] for verdict in REGRESSIONS)
        unclear = "unclear" in wanted and counts[Verdict.UNCLEAR] > 0
        return regressed or unclear or ("missing" in wanted and bool(self.only_before or any(map(is_skipped, self.cells))))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per cell."""
        named = zip(self.cells, words.describe_cells(self.cells), strict=True)
        return [
            {
                "verdict": cell.verdict.value,
                **dict(zip(words.NAMES, name, strict=True)),
                "a_status": cell.before.status.value,
                "b_status": cell.after.status.value,
                "a_ms": cell.before.times.median if cell.before.ok else None,
                "b_ms": cell.after.times.median if cell.after.ok else None,
                **words.ratio_columns(cell.ratio),
                "why": words.why(cell.why),
            }
            for cell, name in named
        ]

    def parts(self, everything: bool = False) -> list[Part]:
        """The cells that changed, or all; what only one journal has; and the counts."""
        return words.comparison(self, everything)

    def markdown(self, everything: bool = False) -> str:
        """As a comment on a pull request."""
        return comment(self.parts(everything))

    def to_json(self) -> dict[str, Any]:
        return {
            "threshold": self.threshold,
            "confidence": CONFIDENCE,
            "overlooked": list(map(words.difference, self.differences)),
            "busy": list(map(words.busy, self.busy)),
            "counts": self.counts,
            "cells": [row | _facts(cell) for row, cell in zip(self.rows, self.cells, strict=True)],
            "only_in_a": list(map(identity_fields, self.only_before)),
            "only_in_b": list(map(identity_fields, self.only_after)),
        }


def _facts(cell: Cell) -> dict[str, Any]:
    """What was compared, and what ran on each side."""
    return {"cell": identity_fields(cell.before), "a": _side(cell.before), "b": _side(cell.after)}


def _side(record: Record) -> dict[str, Any]:
    return {"kernel": record.label, "asked": record.asked, "reason": record.reason, "older": record.ok and is_older(record)}


def compare(before: str | Path, after: str | Path, threshold: float = PRACTICAL, force: bool = False) -> Comparison:
    """What changed from `before` to `after`; journals that cannot be compared fairly are refused unless forced."""
    a, b = read(before), read(after)
    empty = [str(folder) for folder, side in ((before, a), (after, b)) if not side.records]
    if empty:
        raise BadInput(f"there is no record in {' and '.join(empty)}; give folders in which `longca run` measured something.")
    for folder, side in ((before, a), (after, b)):
        refuse_several_devices(folder, side)
    matches = match(a.records, b.records)
    if not matches.pairs:
        fields = [Difference(("A", "B"), name, [values]) for name, values in differing_fields(a.records, b.records).items()]
        differ = ", ".join(map(words.difference, fields))
        raise BadInput(f"{before} and {after} have no cell in common: they differ in {differ}; compare two runs of the same suite.")
    differences = find_differences(matches.pairs, a, b)
    if differences and not force:
        apart = "; and in ".join(map(words.difference, differences))
        raise BadInput(f"{before} and {after} differ in {apart}; `longca compare --force` compares them anyway.")
    sides = ("A", before, a), ("B", after, b)
    busy = {name: found for name, folder, side in sides if (found := find_busy(folder, side))}
    cells = judge(matches.pairs, threshold, list(busy))
    return Comparison(threshold, cells, matches.only_before, matches.only_after, differences, list(busy.values()))


def find_busy(name: str | Path, results: Results) -> Busy | None:
    """How many cells of a run are noisy, where these are many. The other cells, measured in between, may be off by any factor too,
    however close together their samples are (docs/compare.md has what was seen)."""
    measured = [record for record in results.records if record.ok]
    noisy = sum(map(is_too_noisy, measured))
    kinds = {results.environment(record).device_kind for record in measured}
    share = min((BUSY.get(kind or "", USUAL_BUSY) for kind in kinds), default=USUAL_BUSY)
    return Busy(str(name), noisy, len(measured)) if noisy > share * len(measured) else None


def refuse_several_devices(name: str | Path, results: Results) -> None:
    devices = {results.environment(record).name for record in results.records}
    if len(devices) > 1:
        raise BadInput(f"{name} holds records of several devices ({', '.join(sorted(devices))}); compare journals of one.")


def find_differences(
    pairs: Sequence[tuple[Record, Record]], a: Results, b: Results, sides: tuple[str, str] = ("A", "B")
) -> list[Difference]:
    """What makes times incomparable. Cells are looked at one by one, as a run may be resumed under other conditions."""
    found: dict[str, list[tuple[Any, Any]]] = {}
    for left, right in dict.fromkeys((one.env, other.env) for one, other in pairs):
        machines = [side.environments.get(name) or Environment() for side, name in ((a, left), (b, right))]
        for name, title in CONDITIONS.items():
            known, other = (getattr(machine, name) for machine in machines)
            unknown = name in MAY_BE_UNKNOWN and (known is None or other is None)
            if known != other and not unknown:  # 1 and 1.0 are equal
                if isinstance(known, dict) and isinstance(other, dict):  # what is equal in both says nothing
                    same = known.items() & other.items()
                    known, other = ({key: value for key, value in one.items() if (key, value) not in same} for one in (known, other))
                values = found.setdefault(title, [])
                values += [(known, other)] if (known, other) not in values else []
    return [Difference(sides, title, values) for title, values in found.items()]
