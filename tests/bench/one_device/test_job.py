"""One job inside a worker: passes share preparation and check, gradients never accumulate, and no time exists that should not."""

import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from in_process import InProcessWorker, outcomes_of, replies_to
from longca import masks
from longca.bench.check import check as check_module
from longca.bench.check.calls import Calls
from longca.bench.check.trial_names import TrialName
from longca.bench.one_device import job as job_module
from longca.bench.one_device.messages import Answer, Chosen, DeviceLost, WorkerJob
from longca.bench.one_device.session import Session
from longca.bench.one_device.worker import Worker
from longca.bench.one_device.workers import Workers
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.run.outcomes import CellFailed
from longca.bench.run.retry import Suspect, outcomes
from longca.kernels import registry
from longca.kernels.backends import torch_attention
from longca.kernels.base import Case
from longca.results.problem import Pass, Problem
from longca.results.record import Outcome, Status
from longca.results.settings import ClockSettings
from made_cells import changed, make_cell

CELL = make_cell("torch:plain", mask="causal", seqlen=96, pass_=Pass.FWD)
QUICK = ClockSettings(warmup_s=0, budget_s=0.001, least=3)


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Session:
    monkeypatch.setattr(job_module, "_refuse_wrong_in_trial", lambda *given: None)  # here calls are counted
    made = Session(lambda phase: None, "a CPU")
    made.configure(WorkerJob(clock=QUICK, cache=str(tmp_path)))
    return made


def cells(*passes: Pass, **changes: Any) -> list[Cell]:
    return [changed(CELL, pass_=pass_, **changes) for pass_ in passes]


def run(session: Session, *passes: Pass, timed: bool = True, **changes: Any) -> dict[Pass, Outcome]:
    asked = cells(*passes, **changes)
    job = WorkerJob(cells=asked, digest=asked[0].problem.build_mask().digest, clock=QUICK, timed=timed)
    return {reply.pass_: reply.outcome for reply in job_module.run(job, session) if isinstance(reply, Answer)}


class InProcess(Workers):
    """Workers in this process. `attempts` are the passes of each job, `released` counts the problems that ended."""

    def __init__(self, cache: Path) -> None:
        self.attempts, self.released = list[tuple[list[Pass], bool]](), 0
        catalogue = Catalogue({CELL.kernel: Entry(CELL.kernel, {})})
        super().__init__(Suite(clock=QUICK), catalogue, "cpu", "a CPU", cache, full=False, start=InProcessWorker)

    def attempt(self, job: Job, trial: TrialName | None = None) -> Iterator[tuple[Pass, Outcome]]:
        self.attempts.append((job.passes, job.cell.grad))
        return super().attempt(job, trial)

    def release(self, job: Job) -> None:
        self.released += 1
        super().release(job)


@pytest.fixture
def executor(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path)


def message(*passes: Pass, **settings: Any) -> WorkerJob:
    return WorkerJob(cells=cells(*passes), digest=CELL.problem.build_mask().digest, clock=QUICK, **settings)


def job_of(*passes: Pass, **changes: Any) -> Job:
    (job,) = make_jobs(plan(cells(*passes, **changes), "a CPU", defaultdict(dict)))
    return job


def test_passes_share_one_preparation_and_one_check(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    prepare, check = registry.classes()["torch"].prepare, check_module.check_kernel
    monkeypatch.setattr(registry.classes()["torch"], "prepare", lambda *given: calls.append("prepare") or prepare(*given))
    monkeypatch.setattr(check_module, "check_kernel", lambda *given, **more: calls.append("check") or check(*given, **more))
    found = run(session, *Pass)
    assert calls == ["prepare", "prepare", "check"]  # the second time is that of planning
    assert [outcome.status for outcome in found.values()] == [Status.OK] * 3
    assert all(set(outcome.check or {}) == {"out", "lse", "dq", "dk", "dv"} for outcome in found.values())
    assert all(outcome.timed and outcome.build_ms and outcome.plan_ms for outcome in found.values())


class Preparing:
    """The kernel torch, whose preparing takes as long as is said, one after the other; and what is there of it at a time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: list[float]) -> None:
        self.seconds, self.alive, self.most, self.count = seconds, weakref.WeakSet[Any](), 0, 0
        self.real = registry.classes()["torch"].prepare
        monkeypatch.setattr(registry.classes()["torch"], "prepare", lambda *given: self.prepare(*given))

    def prepare(self, *given: Any) -> Any:
        time.sleep(self.seconds[min(self.count, len(self.seconds) - 1)])
        self.count += 1
        made = self.real(*given)
        made.itself = made  # what refers to itself goes only when it is collected
        self.alive.add(made)
        self.most = max(self.most, len(self.alive))
        return made


def test_what_only_the_first_preparing_takes_is_compiling(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Preparing(monkeypatch, [0.5, 0.01])
    found = run(session, Pass.FWD, Pass.BWD)
    assert (kernel.count, kernel.most) == (2, 1)  # never two at a time: there may be no memory for both
    assert all(10 < outcome.plan_ms < 200 and outcome.compile_ms > 400 for outcome in found.values())
    assert run(session, Pass.FWD)[Pass.FWD].compile_ms < 200  # and later ones take it no more
    assert kernel.count == 4


def test_a_preparing_that_is_slow_every_time_is_repeated_once_and_never_again(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Preparing(monkeypatch, [0.3])
    assert run(session, Pass.FWD)[Pass.FWD].plan_ms > 290
    assert run(session, Pass.FWD)[Pass.FWD].plan_ms > 290
    assert kernel.count == 3
    assert run(session, Pass.FWD, kernel="torch:chunked")[Pass.FWD].plan_ms > 290  # another way may be quicker
    assert kernel.count == 5


def test_the_first_call_has_the_deadline_of_building_and_shows_what_compiling_took(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases, forward = list[str](), torch_attention._Plain.forward
    monkeypatch.setattr(session, "phase", phases.append)
    during = list[str]()

    def compiling(*given: Any) -> Any:
        time.sleep(0 if during else 1.0)
        during.append(phases[-1])
        return forward(*given)

    monkeypatch.setattr(torch_attention._Plain, "forward", compiling)
    found = run(session, Pass.FWD, Pass.BWD)
    assert during[:2] == ["build", "check"]  # the two data sets
    assert set(during[2:]) == {"time"}
    assert (found[Pass.FWD].compile_ms or 0) > 500 > (found[Pass.BWD].compile_ms or 0)


def test_a_wrong_backward_is_wrong_and_its_forward_is_measured(executor: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    right, made, build = torch_attention._Plain.backward, list[Problem](), Problem.build_mask
    monkeypatch.setattr(torch_attention._Plain, "backward", lambda *given: tuple(grad * 1.01 for grad in right(*given)))
    job = job_of(*Pass)
    monkeypatch.setattr(Problem, "build_mask", lambda problem: made.append(problem) or build(problem))
    found = dict(outcomes(job, executor))
    assert [found[pass_].status for pass_ in Pass] == [Status.OK, Status.WRONG, Status.WRONG]
    assert "dq is off" in found[Pass.BWD].reason
    assert (found[Pass.BWD].check or {})["dq"].share > 1
    assert executor.attempts == [(list(Pass), True), ([Pass.FWD], False)]
    assert len(made) == executor.released == 1  # the second attempt has the mask of the first


def test_a_pass_that_fails_in_the_clock_costs_no_other_pass_its_figure(executor: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Calls.of
    monkeypatch.setattr(Calls, "of", lambda calls, pass_: of(calls, pass_) if pass_ is not Pass.BOTH else lambda: 1 / 0)
    found = dict(outcomes(job_of(*Pass), executor))
    assert [found[pass_].status for pass_ in Pass] == [Status.OK, Status.OK, Status.ERROR]
    assert found[Pass.BOTH].reason == "ZeroDivisionError: division by zero"
    assert [found[pass_].timed is None for pass_ in Pass] == [False, False, True]
    assert executor.attempts == [(list(Pass), True)]


def test_a_backward_that_fails_from_some_call_on_leaves_the_forward_to_be_measured_alone(
    executor: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails on other numbers too, after the clock: no pass of that attempt has a figure."""
    right, count = torch_attention._Plain.backward, list[int]()

    def tired(*given: Any) -> Any:
        count.append(1)
        return right(*given) if len(count) <= 4 else 1 / 0

    monkeypatch.setattr(torch_attention._Plain, "backward", tired)
    found = dict(outcomes(job_of(*Pass), executor))
    assert [found[pass_].status for pass_ in Pass] == [Status.OK, Status.ERROR, Status.ERROR]
    assert found[Pass.BWD].reason == "ZeroDivisionError: division by zero"
    assert found[Pass.BWD].timed is None
    assert executor.attempts == [(list(Pass), True), ([Pass.FWD], False)]
    assert (found[Pass.FWD].grad, found[Pass.FWD].timed is not None) == (False, True)


def test_a_lost_device_is_told_after_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_: object) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(job_module, "_check", lose)
    monkeypatch.setattr(Session, "after_error", lambda session, error: setattr(session, "device_lost", True))
    *answers, last = replies_to(message(Pass.FWD, Pass.BWD))
    assert last == DeviceLost()
    assert answers[0] == Chosen(Suspect("torch:plain", True))
    assert [(reply.pass_, reply.outcome.status) for reply in answers[1:] if isinstance(reply, Answer)] == [
        (Pass.FWD, Status.ERROR),
        (Pass.BWD, Status.ERROR),
    ]


def test_a_device_that_a_wrong_kernel_breaks_in_a_later_call_of_a_trial_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostCuda:
        def synchronize(self) -> None:
            raise RuntimeError("an illegal memory access was encountered")

        def empty_cache(self) -> None:
            raise AssertionError("a lost device is left alone")

    calls, worker = count(), Worker({"device": "cpu"}, lambda message: None)

    def wrong_then_raises(*_: object) -> tuple[torch.Tensor, torch.Tensor]:
        if next(calls):
            worker._session._cuda = LostCuda()
            raise RuntimeError("an illegal memory access was encountered")
        return torch.ones(256, 4, 16), torch.ones(4, 256)

    monkeypatch.setattr(torch_attention._Plain, "forward", wrong_then_raises)
    answer, last = replies_to(message(Pass.FWD, trial=TrialName.SCALE), worker)
    assert isinstance(answer, Answer)
    assert answer.outcome.status is Status.WRONG
    assert "in a later call it raises RuntimeError: an illegal memory access" in answer.outcome.reason
    assert last == DeviceLost()


def test_a_variant_that_is_given_up_is_not_run() -> None:
    """It is known by its own name and by whether a backward was asked for, on both sides of the pipe."""
    late = Outcome(status=Status.TIMEOUT, reason="not tried", grad=True)
    for grad, status in ((True, Status.TIMEOUT), (False, Status.OK)):
        found = outcomes_of(message(Pass.FWD, given_up=[(Suspect("torch:plain", grad), late)]))
        assert found[Pass.FWD].status is status


def test_forward_only_asks_for_no_gradients(session: Session) -> None:
    assert set(run(session, Pass.FWD, grad=False, kernel="sdpa:math")[Pass.FWD].check or {}) == {"out"}


@pytest.mark.parametrize(
    ("label", "mask", "need"),
    [
        ("torch:plain", masks.causal(1024), "128 MiB for the scores of 64 heads"),
        ("sdpa:math", masks.prefix_lm_causal(1024, p=9), "128 MiB for the scores of 64 heads"),
        ("sdpa:efficient", masks.prefix_lm_causal(1024, p=9), "2 MiB for a dense mask"),
    ],
)
def test_quadratic_memory_stops_at_a_length_with_what_it_would_take(label: str, mask: masks.Mask, need: str) -> None:
    kernel, case = registry.get(label), Case(1024, 1024, 64, 8, 128, 128, device="cuda")
    with pytest.raises(CellFailed) as refused:
        job_module.refuse_quadratic(kernel, mask, case, 512)
    assert str(refused.value) == f"O(S²) memory, {need} at 1024 tokens: skipped beyond 512 tokens; --full runs it"
    assert refused.value.status is Status.SKIPPED
    job_module.refuse_quadratic(kernel, mask, case, 1024)
    job_module.refuse_quadratic(kernel, mask, case, None)
    job_module.refuse_quadratic(registry.get("torch:chunked"), mask, case, 512)


def test_a_held_kernel_is_prepared_once_and_checked_in_each_turn(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, prepared, broken = cells(Pass.FWD, Pass.BWD), [], []
    prepare, plain = registry.prepare, torch_attention._Plain.forward
    monkeypatch.setattr(registry, "prepare", lambda *given: prepared.append(1) or prepare(*given))
    monkeypatch.setattr(torch_attention._Plain, "forward", lambda *given: [x * (0.9 if broken else 1) for x in plain(*given)])

    def turn() -> list[Status]:
        job = WorkerJob(cells=asked, digest=asked[0].problem.build_mask().digest, clock=QUICK, holds=True)
        return [reply.outcome.status for reply in job_module.run(job, session) if isinstance(reply, Answer)]

    assert turn() == turn() == turn() == [Status.OK] * 2
    made = len(prepared)
    broken.append(1)
    assert turn()[0] is Status.WRONG
    session.end_problem()
    broken.clear()
    assert turn() == [Status.OK] * 2
    assert len(prepared) > made
