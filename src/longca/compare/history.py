"""Many journals, one after another: the time of each cell in each of them, and where it changed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from longca.compare import words
from longca.compare.journals import Busy, Difference, find_busy, find_differences, refuse_several_devices
from longca.compare.plateaus import Change, find_steps
from longca.compare.verdicts import Verdict, is_too_noisy
from longca.errors import BadInput
from longca.results.files import journals_below
from longca.results.grouping import grouped
from longca.results.ratio import ENOUGH_SAMPLES, Ratio, ratio
from longca.results.reading import Identity, Results, identity, read
from longca.results.record import Record, comparable
from longca.results.shown import Part, Shown, comment


class LeftOut(StrEnum):
    """Why a record is no part of a plateau."""

    FAILED = "no time"
    BUSY = "the machine was busy"
    NOISY = "noisy"
    FEW_SAMPLES = "too few samples"


class Commit(NamedTuple):
    """One journal of a history: the name that tells it apart, its records, and why they are not trusted, if so."""

    name: str
    results: Results
    busy: Busy | None


@dataclass(frozen=True)
class Line:
    """One cell: a record for each commit, or None; what is left out of its plateaus, and why; the steps between these."""

    records: tuple[Record | None, ...]
    left_out: dict[int, LeftOut]
    steps: dict[int, Change]  # numbered as `records`

    @property
    def cell(self) -> Record:
        return next(record for record in self.records if record is not None)

    def change(self, number: int) -> Ratio | None:
        """The ratio of a time to the one before, as `compare` estimates it; None where there is none."""
        times = [record.times for record in self.records[: number + 1] if record is not None and record.ok]
        last = self.records[number]
        return ratio(times[-2].samples, times[-1].samples) if last is not None and last.ok and len(times) > 1 else None

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    @property
    def slower(self) -> bool:
        """Whether the last step made it slower: a single slow run makes a second step, back."""
        return bool(self.steps) and self.steps[max(self.steps)].verdict is Verdict.SLOWER


@dataclass(frozen=True, repr=False)
class History(Shown):
    """One line per cell, with its times in each journal and the steps between plateaus."""

    threshold: float
    commits: list[str]
    lines: list[Line]
    busy: list[Busy]
    differences: list[Difference]  # overlooked because of --force

    @property
    def ok(self) -> bool:
        """Whether no cell's last step made it slower."""
        return not any(line.slower for line in self.lines)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per cell and journal."""
        named = zip(self.lines, words.describe_all([line.cell for line in self.lines]), strict=True)
        return [row for line, name in named for row in self.rows_of(line, name)]

    def rows_of(self, line: Line, name: list[str]) -> list[dict[str, Any]]:
        return [
            dict(zip(words.NAMES, name, strict=True))
            | {"commit": self.commits[number], "ms": record.times.median if record.ok else None}
            | {"ratio": change.value if (change := line.change(number)) else None, "step": words.step(line, number)}
            for number, record in enumerate(line.records)
            if record is not None
        ]

    def parts(self, everything: bool = False) -> list[Part]:
        """The cells that changed, or all, with a line for each journal; and how many there are."""
        return words.history(self, everything)

    def markdown(self, everything: bool = False) -> str:
        """As a comment on a pull request."""
        return comment(self.parts(everything))


def history(folders: Sequence[str | Path], threshold: float, force: bool = False) -> History:
    """The history of the journals in these folders, in their order; a folder that holds journals stands for them, in the order of their
    names with numbers counted as numbers."""
    commits = list(_commits(folders))
    if len(commits) < 2:
        raise BadInput(f"a history needs two journals or more, and there is {len(commits)} in {', '.join(map(str, folders))}.")
    by_cell: dict[Identity, dict[int, Record]] = {}
    found_in = [grouped(commit.results.records, identity) for commit in commits]
    twice = {cell for found in found_in for cell, own in found.items() if len(own) > 1}  # a forward alone, and one whose backward failed
    for number, found in enumerate(found_in):
        for cell, record in ((cell, record) for cell, own in found.items() for record in own):
            by_cell.setdefault((*cell, record.planned_grad) if cell in twice else cell, {})[number] = record
    by_cell = {cell: dict(zip(found, comparable([*found.values()]), strict=True)) for cell, found in by_cell.items()}
    differences = _differences(commits, by_cell)
    if differences and not force:
        raise BadInput(f"{'; and '.join(map(words.unlike, differences))}; --force compares them anyway.")
    lines = [_line(found, commits, threshold) for found in by_cell.values()]
    return History(threshold, [commit.name for commit in commits], lines, [one.busy for one in commits if one.busy], differences)


def _commits(folders: Sequence[str | Path]) -> Iterator[Commit]:
    paths = dict.fromkeys(path for folder in folders for path in _journals(Path(folder)))
    names = [path.resolve().name for path in paths]
    for path, name in zip(paths, names, strict=True):
        results = read(path)
        refuse_several_devices(path, results)
        yield Commit(name if names.count(name) == 1 else str(path), results, find_busy(path, results))


def _journals(folder: Path) -> list[Path]:
    below = journals_below(folder)
    return [folder] if folder in below or not below else sorted(below, key=_natural)


def _natural(path: Path) -> list[tuple[int, str]]:
    """A key that sorts 9 before 10."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdecimal() and len(part) < 19 else (-1, part) for part in parts]


def _differences(commits: Sequence[Commit], by_cell: dict[Identity, dict[int, Record]]) -> list[Difference]:
    """What makes the times of neighbours incomparable."""
    differences = []
    for number, (before, after) in enumerate(pairwise(commits)):
        pairs = [(found[number], found[number + 1]) for found in by_cell.values() if number in found and number + 1 in found]
        differences += find_differences(pairs, before.results, after.results, (before.name, after.name))
    return differences


def _line(found: dict[int, Record], commits: Sequence[Commit], threshold: float) -> Line:
    left_out = {number: why for number, record in found.items() if (why := _why_not(record, commits[number]))}
    used = {number: record for number, record in found.items() if number not in left_out}
    return Line(tuple(found.get(number) for number in range(len(commits))), left_out, find_steps(used, threshold))


def _why_not(record: Record, commit: Commit) -> LeftOut | None:
    """Why a record is no part of a plateau; None where it is."""
    if not record.ok:
        return LeftOut.FAILED
    if commit.busy:
        return LeftOut.BUSY
    if is_too_noisy(record):
        return LeftOut.NOISY
    return LeftOut.FEW_SAMPLES if len(record.times.samples) < ENOUGH_SAMPLES else None
