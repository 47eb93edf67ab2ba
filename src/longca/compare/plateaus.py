"""Plateaus of one cell over many runs: between which of them the time really changed.

Runs that follow one another are joined as long as the rule of `compare` does not call them different, the most alike first. What is left
are plateaus, and a step lies between two of them. The samples of a plateau are compared together: runs that differ among each other look
like a clock that steps, and the rule then asks for more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from longca.compare.verdicts import Verdict, decide
from longca.results.ratio import Ratio, ratio
from longca.results.record import Record

CHANGES = (Verdict.SLOWER, Verdict.FASTER)
MOST_SAMPLES = 100  # of a plateau of several runs; of more, evenly chosen ones count


class Change(NamedTuple):
    """From one plateau to the next."""

    verdict: Verdict
    ratio: Ratio


Group = tuple[int, ...]  # the numbers of runs that follow one another


def find_steps(runs: Mapping[int, Record], threshold: float) -> dict[int, Change]:
    """The steps between plateaus of runs by their numbers, in this order, each at the first run of a plateau; all records are ok and
    steady."""

    @cache
    def change(before: Group, after: Group) -> Change:
        return _change([runs[number] for number in before], [runs[number] for number in after], threshold)

    groups = _join([(number,) for number in sorted(runs)], change)
    return {after[0]: change(before, after) for before, after in pairwise(groups)}


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
