"""Two kernels in turns: who goes first, what ends the rounds, and what a failure leaves."""

from collections.abc import Callable
from typing import Any

import pytest

from longca.bench.one_device.turns import TURNS, Contest, Rounds, take_rounds
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.results.problem import Pass
from longca.results.record import Outcome, Status, Times
from made_cells import make_cell

WRONG = Outcome(status=Status.WRONG, reason="it is wrong")


class Side:
    """Workers that answer from a function of the number of the turn, the pass, and whether a backward is wanted."""

    def __init__(self, name: str, log: list[str], answer: Callable[[int, Pass, bool], Outcome]) -> None:
        self.name, self.log, self.answer, self.made, self.turn = name, log, answer, 0, -1
        self.closed, self.made_after = 0, list[int]()  # the number of turns before each call

    def __call__(self) -> Any:
        self.made, self.turn = self.made + 1, -1
        self.made_after.append(len(self.log))
        return self

    def attempt(self, job: Job) -> Any:
        self.turn += 1
        self.log.append(self.name)
        return [(pass_, self.answer(self.turn, pass_, job.cell.grad)) for pass_ in job.passes]

    def close(self) -> None:
        self.closed += 1


def timed(ms: float) -> Outcome:
    return Outcome(status=Status.OK, timed=Times(median=ms, p20=ms, p80=ms, samples=[ms], tflops=1.0))


def contest(*passes: Pass) -> Contest:
    cells = [make_cell(kernel="torch", mask="causal", seqlen=64, pass_=pass_) for pass_ in passes]
    (job,) = make_jobs(plan(cells, "a CPU", {"torch": {}}))
    return Contest(job, job)


def run(played: Contest, a: Any, b: Any, decided: Callable[[Rounds], bool], seconds: float = 1e3) -> tuple[Side, list[str]]:
    log: list[str] = []
    one, other = Side("A", log, a), Side("B", log, b)
    take_rounds([played], (one, other), seconds, (2, 3), decided, lambda text: None)
    assert one.made == other.made
    return one, log


def test_rounds_have_new_workers_and_sides_change_places() -> None:
    played = contest(Pass.FWD, Pass.BWD)
    side, log = run(played, lambda *_: timed(1.0), lambda turn, *_: timed(2.0 + turn), lambda rounds: False)
    assert side.made == 3
    turns = [(1.0, 2.0 + number) for number in range(1, TURNS["cpu"] + 1)]  # the first one checks, and does not count
    assert played.rounds[Pass.FWD].times == [turns] * 3
    pairs = list(zip(log[::2], log[1::2], strict=True))
    assert set(pairs) == {("A", "B"), ("B", "A")}
    assert abs(pairs.count(("A", "B")) - pairs.count(("B", "A"))) <= 3


def test_times_of_two_clocks_are_compared_as_measured() -> None:
    """The same kernel, at a clock that is once just below and once just above the one from which on times stay as measured."""
    at_reference = Times(median=2.6, p20=2.6, p80=2.6, samples=[2.6], tflops=1.0, clock_mhz=1820.0, clocks=[1820], at_mhz=1400.0)
    as_measured = Times(median=2.0, p20=2.0, p80=2.0, samples=[2.0], tflops=1.0, clock_mhz=1840.0, clocks=[1840])
    played = contest(Pass.FWD)
    one, other = (lambda *_, timed=timed: Outcome(status=Status.OK, timed=timed) for timed in (at_reference, as_measured))
    run(played, one, other, lambda rounds: True)
    assert played.rounds[Pass.FWD].times[0][0] == pytest.approx((2.0, 2.0))


def test_the_workers_of_a_round_start_in_the_one_before_and_all_are_closed() -> None:
    log: list[str] = []
    one, other = (Side(name, log, lambda *_: timed(1.0)) for name in "AB")
    take_rounds([contest(Pass.FWD)], (one, other), 1e3, (2, 3), lambda rounds: False, lambda text: None, ahead=True)
    assert one.made == other.made == one.closed == other.closed == 4
    turns = len(log) // 3  # of a round
    assert one.made_after == other.made_after == [0, 0, turns, 2 * turns]


def test_a_decided_pass_is_timed_no_longer() -> None:
    played = contest(Pass.FWD, Pass.BWD)
    same = lambda turn, pass_, grad: timed(1.0 if pass_ is Pass.FWD else 9.0)  # noqa: E731
    run(played, same, same, lambda rounds: rounds.times[0][0] == (1.0, 1.0))
    assert {pass_: len(rounds.times) for pass_, rounds in played.rounds.items()} == {Pass.FWD: 2, Pass.BWD: 3}


def test_the_time_ends_the_rounds() -> None:
    side, _ = run(contest(Pass.FWD), lambda *_: timed(1.0), lambda *_: timed(1.0), lambda rounds: False, seconds=0.0)
    assert side.made == 1


@pytest.mark.parametrize("turn_of_failure", [0, 2])
def test_a_side_that_fails_leaves_no_time(turn_of_failure: int) -> None:
    played = contest(Pass.FWD)
    run(played, lambda *_: timed(1.0), lambda turn, *_: WRONG if turn >= turn_of_failure else timed(1.0), lambda rounds: False)
    assert played.rounds[Pass.FWD].times == []
    assert [outcome.status for outcome in played.rounds[Pass.FWD].failed] == [Status.OK, Status.WRONG]


def test_a_forward_is_timed_alone_where_there_is_no_backward() -> None:
    played = contest(Pass.FWD, Pass.BWD)
    run(played, lambda *_: timed(1.0), lambda turn, pass_, grad: WRONG if grad else timed(2.0), lambda rounds: False)
    assert played.rounds[Pass.FWD].times == [[(1.0, 2.0)] * TURNS["cpu"]] * 3
    assert played.rounds[Pass.BWD].failed[1] == WRONG
