"""Plateaus of one cell over many runs: between which of them the time really changed.

Runs that follow one another are joined as long as the rule of `compare` does not call them different, the most alike first. What is left
are plateaus, and a step lies between two of them. The samples of a plateau are compared together: runs that differ among each other look
like a clock that steps, and the rule then asks for more. A single run that differs from those before and after it, which are alike, is an
outlier of the machine and no step. A time that rises or falls a little with every run makes no step; it is found as a creep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median
from typing import NamedTuple

from longca.compare.ratio import Ratio, ratio
from longca.compare.verdicts import Verdict, decide
from longca.results.record import Record

CHANGES = (Verdict.SLOWER, Verdict.FASTER)
MOST_SAMPLES = 100  # of a plateau of several runs; of more, evenly chosen ones count
CREEPING_RUNS, CREEPING = 4, 0.8  # runs of a creep at least, and Kendall's rank correlation of time and order


class Change(NamedTuple):
    """From one plateau to the next, or from the first to the last run of a creep."""

    verdict: Verdict
    ratio: Ratio


@dataclass(frozen=True)
class Plateaus:
    """Of runs by their numbers: the steps, each at the first run of a plateau; outliers; and creeps, each at the last run of one."""

    steps: dict[int, Change]
    outliers: tuple[int, ...]
    creeps: dict[int, tuple[int, Change]]  # with the run at which it begins


def find_plateaus(records: Sequence[Record], threshold: float) -> Plateaus:
    """The plateaus of records that are ok and steady, in the order of their runs."""
    groups = [[number] for number in range(len(records))]
    outliers = list[int]()
    while True:
        groups = _join(groups, records, threshold)
        lonely = _outlier(groups, records, threshold)
        if lonely is None:
            break
        outliers += groups.pop(lonely)
    if len(groups) > 1 and len(groups[-1]) == 1:
        usual = max((_distance(records[number], records, groups[:-1]) for number in outliers), default=0.0)
        if _distance(records[groups[-1][0]], records, groups[:-1]) <= usual:
            outliers += groups.pop()  # no further off than single runs were before
    steps = {after[0]: _change(before, after, records, threshold) for before, after in pairwise(groups)}
    creeps = {group[-1]: creep for group in groups if (creep := _creep(group, records, threshold))}
    return Plateaus(steps, tuple(sorted(outliers)), creeps)


def _join(groups: list[list[int]], records: Sequence[Record], threshold: float) -> list[list[int]]:
    """Joins neighbours that are not different, the most alike first."""
    groups = [list(group) for group in groups]
    changes = [_change(before, after, records, threshold) for before, after in pairwise(groups)]
    while True:
        alike = [place for place, change in enumerate(changes) if change.verdict not in CHANGES]
        if not alike:
            return groups
        place = min(alike, key=lambda place: abs(math.log(changes[place].ratio.value)))
        groups[place : place + 2] = [groups[place] + groups[place + 1]]
        del changes[place]
        for near in (place - 1, place):
            if 0 <= near < len(changes):
                changes[near] = _change(groups[near], groups[near + 1], records, threshold)


def _outlier(groups: Sequence[Sequence[int]], records: Sequence[Record], threshold: float) -> int | None:
    """The place of a single run between two plateaus that are alike; None where there is none."""
    for place in range(1, len(groups) - 1):
        alone = len(groups[place]) == 1
        if alone and _change(groups[place - 1], groups[place + 1], records, threshold).verdict not in CHANGES:
            return place
    return None


def _distance(record: Record, records: Sequence[Record], groups: Sequence[Sequence[int]]) -> float:
    """How far a run is from the nearest plateau, as a logarithm."""
    levels = [median(math.log(records[number].times.median) for number in group) for group in groups]
    return min(abs(math.log(record.times.median) - level) for level in levels)


def _change(before: Sequence[int], after: Sequence[int], records: Sequence[Record], threshold: float) -> Change:
    """What the rule of `compare` says of two plateaus; a change that the SM clock explains is none."""
    sides = [[records[number] for number in group] for group in (before, after)]
    found = ratio(*(_samples(side) for side in sides))
    verdict = decide(found, threshold)
    clocks = [[clock for record in side if record.timed and (clock := record.timed.clock_mhz)] for side in sides]
    if verdict in CHANGES and all(clocks) and decide(found.times(median(clocks[1]) / median(clocks[0])), threshold) is not verdict:
        verdict = Verdict.UNCLEAR
    return Change(verdict, found)


def _samples(records: Sequence[Record]) -> list[float]:
    """The samples of all runs in their order; evenly chosen ones where there are many. A single run has all of them, so that two runs are
    compared as `longca compare` does."""
    if len(records) == 1:
        return list(records[0].times.samples)
    share = max(1, MOST_SAMPLES // len(records))
    return [sample for record in records for sample in _thinned(record.times.samples, share)]


def _thinned(samples: Sequence[float], most: int) -> Sequence[float]:
    return samples if len(samples) <= most else [samples[place * len(samples) // most] for place in range(most)]


def _creep(group: Sequence[int], records: Sequence[Record], threshold: float) -> tuple[int, Change] | None:
    """The first run and the change to the last, where times of a plateau rise or fall with nearly every run, and by more than matters."""
    if len(group) < CREEPING_RUNS:
        return None
    times = [records[number].times.median for number in group]
    pairs = list(combinations(times, 2))
    tau = sum((late > early) - (late < early) for early, late in pairs) / len(pairs)
    change = _change(group[:1], group[-1:], records, threshold)
    wanted = Verdict.SLOWER if tau > 0 else Verdict.FASTER
    return (group[0], change) if abs(tau) >= CREEPING and change.verdict is wanted else None
