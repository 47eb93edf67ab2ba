"""Plateaus of one cell over many runs: between which of them the time really changed.

Runs that follow one another are joined as long as the rule of `compare` does not call them different, the most alike first. What is left
are plateaus, and a step lies between two of them. The samples of a plateau are compared together: runs that differ among each other look
like a clock that steps, and the rule then asks for more. A single run that differs from those before and after it, which are alike, is an
outlier of the machine and no step. A time that rises or falls a little with every run makes no step; it is found as a creep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise
from statistics import median
from typing import NamedTuple

from longca.compare.verdicts import Verdict, decide
from longca.results.ratio import Ratio, ratio
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


Group = tuple[int, ...]  # the numbers of runs that follow one another


def find_plateaus(runs: Mapping[int, Record], threshold: float) -> Plateaus:
    """The plateaus of runs by their numbers, in this order; all records are ok and steady."""

    @cache
    def change(before: Group, after: Group) -> Change:
        return _change([runs[number] for number in before], [runs[number] for number in after], threshold)

    groups: list[Group] = [(number,) for number in sorted(runs)]
    outliers = list[int]()
    while True:
        groups = _join(groups, change)
        lonely = next((place for place in range(1, len(groups) - 1) if _is_outlier(groups[place - 1 : place + 2], change)), None)
        if lonely is None:
            break
        outliers += groups.pop(lonely)
    steps = {after[0]: change(before, after) for before, after in pairwise(groups)}
    creeps = {group[-1]: (group[0], change(group[:1], group[-1:])) for group in groups if _creeps(group, runs, change)}
    return Plateaus(steps, tuple(sorted(outliers)), creeps)


def _join(groups: Sequence[Group], change: Callable[[Group, Group], Change]) -> list[Group]:
    """Joins neighbours that are not different, the most alike first."""
    groups = list(groups)
    while True:
        changes = [change(before, after) for before, after in pairwise(groups)]
        alike = [place for place, found in enumerate(changes) if found.verdict not in CHANGES]
        if not alike:
            return groups
        place = min(alike, key=lambda place: abs(math.log(changes[place].ratio.value)))
        groups[place : place + 2] = [groups[place] + groups[place + 1]]


def _is_outlier(groups: Sequence[Group], change: Callable[[Group, Group], Change]) -> bool:
    """Whether the second of three plateaus is a single run, and the others are alike."""
    before, own, after = groups
    return len(own) == 1 and change(before, after).verdict not in CHANGES


def _change(before: Sequence[Record], after: Sequence[Record], threshold: float) -> Change:
    """What the rule of `compare` says of two plateaus; a change that the SM clock explains is none."""
    found = ratio(_samples(before), _samples(after))
    verdict = decide(found, threshold)
    clocks = [[clock for record in side if (clock := record.times.mhz)] for side in (before, after)]
    if verdict in CHANGES and all(clocks) and decide(found.times(median(clocks[1]) / median(clocks[0])), threshold) is not verdict:
        verdict = Verdict.UNCLEAR
    return Change(verdict, found)


def _samples(records: Sequence[Record]) -> list[float]:
    """The samples of all runs in their order; evenly chosen ones where there are many. A single run has all of them, so that two runs are
    compared as `longca compare` does."""
    most = MOST_SAMPLES // len(records) or 1 if len(records) > 1 else math.inf
    samples = list[float]()
    for record in records:
        own = record.times.samples
        samples += own if len(own) <= most else [own[place * len(own) // int(most)] for place in range(int(most))]
    return samples


def _creeps(group: Group, runs: Mapping[int, Record], change: Callable[[Group, Group], Change]) -> bool:
    """Whether the times of a plateau rise or fall with nearly every run, and by more than matters from the first to the last."""
    if len(group) < CREEPING_RUNS:
        return False
    pairs = list(combinations((runs[number].times.median for number in group), 2))
    tau = sum((late > early) - (late < early) for early, late in pairs) / len(pairs)
    wanted = Verdict.SLOWER if tau > 0 else Verdict.FASTER
    return abs(tau) >= CREEPING and change(group[:1], group[-1:]).verdict is wanted
