"""The results of one question over all its packs: total times, who wins, how sure that is over packs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from msgspec.structs import replace

from longca.bench.plan.cell import Cell
from longca.results.problem import Problem, Split
from longca.results.record import Status
from longca.simulate.run import Simulated

AS_LONG = 1e-3  # of the time: no difference
MODEL = "model"  # in place of a mask, where a question is about all layers of a model
DRAWS, PART = 400, 0.05  # of packs, with replacement; what an interval leaves out at each end


@dataclass(frozen=True)
class Entry:
    """One method, grid and set of options, with its results in each pack: one, or of a model one for each of its masks."""

    split: Split
    by_pack: tuple[tuple[Simulated, ...], ...]
    layers: Mapping[str, int]  # of a model: how many have each mask

    @property
    def results(self) -> list[Simulated]:
        return [result for pack in self.by_pack for result in pack]

    def weight(self, result: Simulated) -> int:
        """How many layers take this time."""
        return self.layers.get(result.cell.problem.mask, 1)

    @cached_property
    def times(self) -> list[float]:
        """Milliseconds in each pack, of all layers; where one was not simulated, the least that it can take."""
        return [sum(self.weight(result) * self._ms(result) for result in pack) for pack in self.by_pack]

    @staticmethod
    def _ms(result: Simulated) -> float:
        return result.prediction.ms if result.prediction else result.least_ms or 0.0

    @cached_property
    def total_ms(self) -> float:
        return sum(self.times)

    @property
    def is_simulated(self) -> bool:
        return all(result.prediction is not None for result in self.results)

    @property
    def tflops(self) -> float:
        """Of each GPU: all work over all time."""
        return self.share("tflops")

    @property
    def peak_bytes(self) -> int:
        return max((max(result.prediction.peaks) for result in self.results if result.prediction), default=0)

    def share(self, name: str) -> float:
        """A share of the time of all packs, such as compute_share, or another mean over this time."""
        found = [(self.weight(result), result.prediction) for result in self.results if result.prediction is not None]
        return sum(weight * float(getattr(own, name)) * own.ms for weight, own in found) / self.total_ms

    @property
    def name(self) -> str:
        return f"{self.split.method} {self.split.shape}"


@dataclass(frozen=True)
class Contest:
    """One question: what the packs have in common, and what can do all of them, the fastest first."""

    problem: Problem
    entries: list[Entry]

    @property
    def packs(self) -> int:
        return len(self.best.by_pack)

    @property
    def best(self) -> Entry:
        return self.entries[0]

    @property
    def simulated(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.is_simulated]

    @property
    def by_method(self) -> list[Entry]:
        """The best simulated entry of each method; where none was simulated, the one that can take the least time."""
        best: dict[str, Entry] = {}
        for entry in [*self.simulated, *self.entries]:
            best.setdefault(entry.split.method, entry)
        return sorted(best.values(), key=lambda entry: (entry is not self.best, entry.total_ms))

    @cached_property
    def wins(self) -> dict[str, int]:
        """In how many packs each method is the fastest of those that were simulated there."""
        wins: dict[str, int] = {}
        for pack in range(self.packs):
            known = [entry for entry in self.entries if all(result.prediction for result in entry.by_pack[pack])]
            fastest = min(known or self.entries, key=lambda entry: entry.times[pack])
            wins[fastest.split.method] = wins.get(fastest.split.method, 0) + 1
        return dict(sorted(wins.items(), key=lambda item: -item[1]))

    def longer(self, entry: Entry) -> float:
        """By how much an entry takes longer than the best."""
        return entry.total_ms / self.best.total_ms - 1

    def longer_over_packs(self, entry: Entry) -> tuple[float, float]:
        """The interval of `longer` if other packs of the same kind were drawn: nine in ten of packs drawn again, with replacement."""
        generator, ratios = Random(0), list[float]()
        for _ in range(DRAWS):
            drawn = generator.choices(range(self.packs), k=self.packs)
            ratios.append(sum(entry.times[pack] for pack in drawn) / sum(self.best.times[pack] for pack in drawn) - 1)
        ratios.sort()
        return ratios[int(PART * DRAWS)], ratios[int((1 - PART) * DRAWS) - 1]


def question_of(cell: Cell) -> Problem:
    """What the packs of a question have in common: everything but the seed and the lengths of documents."""
    return replace(cell.problem, seed=0, documents=None)


def contests(results: Sequence[Simulated], one_question: bool = False, layers: Mapping[str, int] | None = None) -> list[Contest]:
    """The questions of these results. With `one_question` (a workload) all masks and lengths are packs of one; with `layers` (a model) the
    masks of one seed are one pack. Entries that are refused or do not fit in some pack are left out; of entries that take as long as the
    fastest, the one that needs the least memory is first, and of these the one with the fewest options set."""
    together: dict[Problem, dict[Split, dict[Problem, Simulated]]] = {}
    asked: dict[Problem, dict[Problem, list[Problem]]] = {}  # the problems of each pack of each question
    for result in results:
        problem, pack, split = question_of(result.cell), result.cell.problem, result.cell.split
        if split is None:
            continue
        if layers:
            problem, pack = replace(problem, mask=MODEL, params=()), replace(pack, mask=MODEL, params=())
        if one_question:
            problem = replace(problem, mask="workload", seqlen=1, params=())
        own = asked.setdefault(problem, {}).setdefault(pack, [])
        if result.cell.problem not in own:
            own.append(result.cell.problem)
        if result.outcome.status in (Status.OK, Status.SKIPPED):
            together.setdefault(problem, {}).setdefault(split, {})[result.cell.problem] = result
    found = []
    for problem, splits in together.items():
        packs = list(asked[problem].values())
        entries = [
            Entry(split, tuple(tuple(own[each] for each in pack) for pack in packs), layers or {})
            for split, own in splits.items()
            if len(own) == sum(map(len, packs))
        ]
        if entries:
            found.append(Contest(problem, _ordered(entries)))
    return found


def _ordered(entries: Sequence[Entry]) -> list[Entry]:
    fastest = min(entry.total_ms for entry in entries)
    equal = [entry for entry in entries if entry.total_ms / fastest - 1 < AS_LONG and entry.is_simulated]
    slower = [entry for entry in entries if entry not in equal]
    return sorted(equal, key=lambda entry: (entry.peak_bytes, len(entry.split.options))) + sorted(slower, key=lambda entry: entry.total_ms)
