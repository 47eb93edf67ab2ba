"""Two kernels timed in turns, each in a worker that keeps it prepared, so that what disturbs the machine disturbs both.

Processes of the same code differ: on a CPU, a kernel with large temporary tensors was slower in some processes than in others, from start
to end. So turns are taken in rounds, each with new processes, and a round counts as one observation.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field

from longca.bench.one_device.workers import Workers
from longca.bench.plan.jobs import Job
from longca.results.problem import Pass
from longca.results.record import Outcome, Status, Times
from longca.results.settings import ClockSettings

TURNS = {"cpu": 5, "cuda": 3}  # of a round
# of one turn: on a GPU long enough for a clock that steps down under load, on a CPU short, as other work comes and goes
CLOCKS = {
    "cuda": ClockSettings(warmup_s=0.1, budget_s=0.2, least=3),
    "cpu": ClockSettings(warmup_s=0.02, budget_s=0.1, least=3),
}


Made = Callable[[], Workers]  # new workers of a side
Outcomes = dict[Pass, list[Outcome]]  # of A and of B


@dataclass
class Rounds:
    """Of one pass: for each round the median milliseconds of A and B in each turn; and the outcomes of both where one failed."""

    times: list[list[tuple[float, float]]] = field(default_factory=list)
    failed: list[Outcome] = field(default_factory=list)


class Contest:
    """A and B on one problem: the jobs of both, with the passes that are still timed, and what was found."""

    def __init__(self, a: Job, b: Job) -> None:
        self._jobs, self._turns, self.rounds = [a, b], TURNS[a.cell.device], {pass_: Rounds() for pass_ in a.passes}
        self.problems = {entry.cell.problem.pass_: entry.cell.problem for entry in a.planned}

    @property
    def left(self) -> list[Pass]:
        return self._jobs[0].passes

    def close(self, pass_: Pass) -> None:
        """Times this pass no longer."""
        self._jobs = [job.only([other for other in job.passes if other is not pass_]) for job in self._jobs]

    def take_round(self, workers: Sequence[Workers], first: int) -> None:
        """Adds a round. Its first turn checks the kernels, and the times of it do not count. Where all passes fail, the forward is tried
        without a backward."""
        alone = [job.forward_alone for job in self._jobs] if self._jobs[0].cell.grad and Pass.FWD in self.left else []
        self._turn(workers, first)
        if not self.left and alone:
            self._jobs, self.rounds[Pass.FWD] = alone, Rounds()
            self._turn(workers, first)
        turns = [self._turn(workers, (first + number) % 2) for number in range(self._turns) if self.left]
        for pass_ in self.left:
            both = [turn[pass_] for turn in turns]
            self.rounds[pass_].times.append([_milliseconds(a.timed, b.timed) for a, b in both if a.timed and b.timed])

    def _turn(self, workers: Sequence[Workers], first: int) -> Outcomes:
        """One turn of both sides, the `first` one first; passes that fail are noted and closed."""
        outcomes: list[dict[Pass, Outcome]] = [{}, {}]
        for side in (first, 1 - first):
            outcomes[side] = dict(workers[side].attempt(self._jobs[side]))
        found = {pass_: [outcomes[0][pass_], outcomes[1][pass_]] for pass_ in self.left}
        for pass_, both in found.items():
            if any(outcome.status is not Status.OK for outcome in both):
                self.rounds[pass_] = Rounds(failed=both)
                self.close(pass_)
        return found


def _milliseconds(a: Times, b: Times) -> tuple[float, float]:
    """The medians of both; as measured where only one of them is given for the device's reference clock."""
    return (a.median, b.median) if a.at_mhz == b.at_mhz else (a.as_measured.median, b.as_measured.median)


def take_rounds(
    contests: Sequence[Contest],
    sides: tuple[Made, Made],
    seconds: float,
    looks: Sequence[int],
    is_decided: Callable[[Rounds], bool],
    show: Callable[[str], None],
    ahead: bool = False,
) -> None:
    """Takes rounds, each with new workers, until the seconds are over, or until all passes are decided at one of the `looks`, which are
    numbers of rounds. With `ahead`, the workers of a round start during the round before it."""
    start = time.monotonic()
    with closing(_new_workers(sides, ahead)) as new_workers:
        for number in range(1, looks[-1] + 1):
            began, left = time.monotonic(), [contest for contest in contests if contest.left]
            workers = next(new_workers)
            for place, contest in enumerate(left, 1):
                show(f"round {number}, mask {place} of {len(left)}")
                contest.take_round(workers, number % 2)
            for contest in contests:
                for pass_ in contest.left if number in looks else ():
                    if is_decided(contest.rounds[pass_]):
                        contest.close(pass_)
            if not any(contest.left for contest in contests) or 2 * time.monotonic() - began > start + seconds:
                return


def _new_workers(sides: tuple[Made, Made], ahead: bool) -> Generator[tuple[Workers, Workers], None, None]:
    """New workers of both sides, closed when the next ones are asked for."""
    pairs = deque[tuple[ExitStack, tuple[Workers, Workers]]]()
    with ExitStack() as all_pairs:
        while True:
            while len(pairs) < 1 + ahead:
                pair = all_pairs.enter_context(ExitStack())
                pairs.append((pair, (pair.enter_context(closing(sides[0]())), pair.enter_context(closing(sides[1]())))))
            yield pairs[0][1]
            pairs.popleft()[0].close()
