"""The policy for attempts: when a forward runs without its backward, and when a kernel is not tried again."""

from collections.abc import Iterator

import pytest

from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.bench.run.retry import STRIKES, Executor, Strikes, Suspect, outcomes
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from made_cells import made_jobs

OK = Outcome(status=Status.OK)
LATE = Outcome(status=Status.TIMEOUT, reason="measuring took longer than its 3 s")


class Scripted(Executor):
    """An executor that answers with the given outcomes, attempt after attempt; `breaks` says after how many its processes are lost."""

    def __init__(self, *answers: dict[Pass, Outcome], breaks: int | None = None) -> None:
        super().__init__()
        self.answers, self.breaks = list(answers), breaks
        self.attempts, self.released = list[tuple[list[Pass], bool]](), 0

    @property
    def lost(self) -> bool:
        return self.breaks is not None and len(self.attempts) >= self.breaks

    def attempt(self, job: Job) -> Iterator[tuple[Pass, Outcome]]:
        self.attempts.append((job.passes, job.cell.grad))
        yield from self.answers.pop(0).items()

    def release(self, job: Job) -> None:
        self.released += 1


def job_of(*passes: Pass) -> Job:
    (job,) = made_jobs(Suite(masks=("causal",), seqlens=(64,), passes=passes))
    return job


@pytest.mark.parametrize("status", [Status.ERROR, Status.TIMEOUT, Status.OOM, Status.WRONG, Status.UNSUPPORTED, Status.SKIPPED])
def test_a_forward_that_failed_beside_its_backward_is_tried_once_more_alone(status: Status) -> None:
    failed = Outcome(status=status, reason="why")
    for second in (OK, failed):
        executor = Scripted(dict.fromkeys(Pass, failed), {Pass.FWD: second})
        found = list(outcomes(job_of(*Pass), executor))
        assert found == [(Pass.BWD, failed), (Pass.BOTH, failed), (Pass.FWD, second)]
        assert executor.attempts == [(list(Pass), True), ([Pass.FWD], False)]
        assert executor.released == 1


@pytest.mark.parametrize("status", [Status.OK, Status.INVALID, Status.UNAVAILABLE])
def test_a_forward_that_was_measured_or_cannot_be_there_is_not_tried_again(status: Status) -> None:
    executor = Scripted({Pass.FWD: Outcome(status=status), Pass.BWD: LATE})
    assert [(pass_, outcome.status) for pass_, outcome in outcomes(job_of(Pass.FWD, Pass.BWD), executor)] == [
        (Pass.FWD, status),
        (Pass.BWD, Status.TIMEOUT),
    ]
    assert len(executor.attempts) == 1


def test_a_forward_is_not_tried_where_no_new_processes_can_be_started() -> None:
    """As where ranks of torchrun broke: its cells are errors, and a later run measures them."""
    executor = Scripted(dict.fromkeys((Pass.FWD, Pass.BWD), LATE), breaks=1)
    found = dict(outcomes(job_of(Pass.FWD, Pass.BWD), executor))
    assert (found[Pass.FWD].status, found[Pass.BWD]) == (Status.ERROR, LATE)
    assert found[Pass.FWD].reason.startswith("not tried without a backward")
    assert len(executor.attempts) == 1
    lost_before = Scripted(dict.fromkeys((Pass.FWD, Pass.BWD), LATE), {Pass.FWD: OK}, breaks=0)  # a refusal asks no rank for anything
    assert dict(outcomes(job_of(Pass.FWD, Pass.BWD), lost_before))[Pass.FWD] == OK


def test_what_the_next_job_of_a_problem_needs_is_kept_for_it() -> None:
    executor, released = Scripted({Pass.FWD: OK}, {Pass.FWD: OK}), []
    for job in made_jobs(Suite(masks=("causal",), seqlens=(64,), passes=(Pass.FWD,)), ("torch", "sdpa"), "one"):
        list(outcomes(job, executor))
        released.append(executor.released)
    assert released == [0, 1]


def test_a_suspect_is_given_up_after_some_breaks_in_a_row_and_an_answer_starts_anew() -> None:
    strikes, suspect = Strikes(), Suspect("fa4:bands", True)
    for _ in range(STRIKES - 1):
        strikes.broke(suspect, Status.ERROR, "its process died")
    strikes.answered(suspect)
    for _ in range(STRIKES - 1):
        strikes.broke(suspect, Status.ERROR, "its process died")
    assert strikes.given_up() == {}
    strikes.broke(suspect, Status.TIMEOUT, "checking took longer than its 3 s")
    reason = "not tried, its process broke 3 times in a row; the last time: checking took longer than its 3 s"
    assert strikes.given_up() == {suspect: Outcome(status=Status.TIMEOUT, reason=reason, grad=True)}
