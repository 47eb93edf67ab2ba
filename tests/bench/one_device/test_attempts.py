"""What a run does with broken workers: who is blamed, who is given up, and what their cells say."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longca.bench.one_device import workers as workers_module
from longca.bench.one_device.messages import Answer, Chosen, DeviceLost, Hello, Provisional, Reply, WorkerJob
from longca.bench.one_device.workers import Workers
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.bench.run.retry import STRIKES, Suspect, outcomes
from longca.processes.lost import ChildLost
from longca.results.problem import Pass
from longca.results.record import Outcome, Status
from made_cells import made_jobs

Behaviour = Callable[[WorkerJob], Iterator[Reply]]
CRASH = ChildLost("error", "its process was killed by SIGSEGV during preparation or the first call")
LATE = ChildLost("timeout", "checking took longer than its 3 s")
ILLEGAL = Outcome(status=Status.ERROR, reason="RuntimeError: an illegal memory access was encountered")


class FakeChild:
    """A worker process that does what a function says; after ChildLost, or once closed, it takes no more jobs."""

    started: int
    behaviour: Behaviour
    jobs: list[WorkerJob]

    def __init__(self) -> None:
        type(self).started += 1
        self.alive = True

    def wait_ready(self) -> None: ...

    def run(self, message: Any) -> Iterator[Reply]:
        assert self.alive
        job = msgspec.convert(message, WorkerJob)
        if job.cells:
            self.jobs.append(job)
            yield from type(self).behaviour(job)

    def take_seconds(self) -> dict[str, float]:
        return {"time": 1.0}

    def end(self) -> None: ...

    def close(self) -> None:
        self.alive = False


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    fresh = type("Fresh", (FakeChild,), {"started": 0, "jobs": []})
    monkeypatch.setattr(workers_module, "start_worker", lambda limits, hello: fresh())
    return fresh


SUITE = Suite(masks=("causal", "full"), seqlens=(64, 65, 66), passes=(Pass.FWD, Pass.BWD))


def workers_and_jobs(cache: Path, *entries: Entry, suite: Suite = SUITE) -> tuple[Workers, list[Job]]:
    catalogue = Catalogue()
    catalogue.add(*(entries or [Entry("kk", {})]))
    workers = Workers(suite, catalogue, "cpu", "a CPU", cache, full=False)
    return workers, made_jobs(suite, list(catalogue.entries), suite.limits.workers)


def measured(job: WorkerJob, label: str = "kk") -> Iterator[Reply]:
    yield Chosen(Suspect(label, job.cells[0].grad))
    yield from (Answer(cell.problem.pass_, Outcome(status=Status.OK, grad=cell.grad)) for cell in job.cells)


@pytest.mark.parametrize("lost", [CRASH, LATE, None], ids=["crash", "timeout", "device"])
def test_after_a_broken_worker_the_forward_runs_alone_in_a_new_one(tmp_path: Path, fake: type[FakeChild], lost: ChildLost | None) -> None:
    def breaks_with_a_backward(job: WorkerJob) -> Iterator[Reply]:
        if not job.cells[0].grad:
            yield from measured(job)
            return
        yield Chosen(Suspect("kk", True))
        if lost is not None:
            raise lost
        yield from (Answer(cell.problem.pass_, ILLEGAL) for cell in job.cells)
        yield DeviceLost()

    fake.behaviour = staticmethod(breaks_with_a_backward)  # type: ignore[assignment]
    workers, jobs = workers_and_jobs(tmp_path)
    found = [dict(outcomes(job, workers)) for job in jobs]
    status, reason = (lost.status, lost.reason) if lost else (ILLEGAL.status, ILLEGAL.reason)
    given_up = f"not tried, its process broke 3 times in a row; the last time: {reason}"
    assert [each[Pass.BWD].reason for each in found] == [reason] * STRIKES + [given_up] * (len(jobs) - STRIKES)
    assert {each[Pass.BWD].status for each in found} == {Status(status)}
    assert {(each[Pass.FWD].status, each[Pass.FWD].grad) for each in found} == {(Status.OK, False)}
    assert [(len(each.cells), each.reference_grad) for each in fake.jobs[:2]] == [(2, True), (1, True)]  # both against the same reference
    assert [job.cells[0].grad for job in fake.jobs] == [True, False] * STRIKES + [False] * (len(jobs) - STRIKES)
    assert fake.started == 1 + STRIKES
    assert workers.spent_s["time"] == len(fake.jobs)


def test_a_kernel_that_was_found_wrong_before_its_worker_broke_stays_wrong(tmp_path: Path, fake: type[FakeChild]) -> None:
    def wrong_then_breaks(job: WorkerJob) -> Iterator[Reply]:
        yield Chosen(Suspect("kk", True))
        yield Provisional(Outcome(status=Status.WRONG, reason="out is off by 0.5", grad=True))
        raise CRASH

    fake.behaviour = staticmethod(wrong_then_breaks)  # type: ignore[assignment]
    workers, (job, *_) = workers_and_jobs(tmp_path)
    wrong = Outcome(status=Status.WRONG, reason=f"out is off by 0.5; in a later call {CRASH.reason}", grad=True)
    assert dict(workers.attempt(job)) == {Pass.FWD: wrong, Pass.BWD: wrong}


def test_a_variant_is_given_up_by_its_own_name_and_its_siblings_go_on(tmp_path: Path, fake: type[FakeChild]) -> None:
    """A bare name takes the variant `a` of one mask and `b` of the other; `a` always breaks."""

    def one_variant_breaks(job: WorkerJob) -> Iterator[Reply]:
        variant = Suspect("kk:a" if job.cells[0].problem.mask == "causal" else "kk:b", job.cells[0].grad)
        if failed := dict(job.given_up).get(variant):
            yield from (Answer(cell.problem.pass_, failed) for cell in job.cells)
            return
        yield Chosen(variant)
        if variant.name == "kk:a":
            raise CRASH
        yield from (Answer(cell.problem.pass_, Outcome(status=Status.OK)) for cell in job.cells)

    fake.behaviour = staticmethod(one_variant_breaks)  # type: ignore[assignment]
    suite = SUITE.changed(seqlens=tuple(range(64, 70)))
    workers, jobs = workers_and_jobs(tmp_path, suite=suite)
    found = [(job.cell.problem.mask, dict(outcomes(job, workers))) for job in jobs]
    assert all(outcome.status is Status.OK for mask, each in found for outcome in each.values() if mask == "full")
    broken = [each[Pass.BWD].reason for mask, each in found if mask == "causal"]
    assert broken == [CRASH.reason] * STRIKES + [f"not tried, its process broke 3 times in a row; the last time: {CRASH.reason}"] * 3
    assert fake.started == 1 + 2 * STRIKES  # with and without a backward


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ([Answer(Pass.FWD, Outcome(status=Status.OK))], "its process sent a reply that nobody asked for"),
        ([Answer(Pass.BOTH, Outcome(status=Status.OK))], "its process sent a reply that nobody asked for"),
        ([], "its process ended the job without an answer"),
    ],
)
def test_answers_that_nobody_asked_for_or_that_are_missing_cost_their_cell(
    second: list[Reply], reason: str, tmp_path: Path, fake: type[FakeChild]
) -> None:
    """A kernel can write to its worker's channel."""

    def answers(job: WorkerJob) -> Iterator[Reply]:
        yield Chosen(Suspect("kk", job.cells[0].grad))
        yield Answer(Pass.FWD, Outcome(status=Status.OK))
        yield from second

    fake.behaviour = staticmethod(answers)  # type: ignore[assignment]
    workers, jobs = workers_and_jobs(tmp_path)
    found = [dict(outcomes(job, workers)) for job in jobs]
    assert [outcome[Pass.FWD].status for outcome in found[:STRIKES]] == [Status.OK] * STRIKES
    assert [(outcome[Pass.BWD].status, outcome[Pass.BWD].reason) for outcome in found[:STRIKES]] == [(Status.ERROR, reason)] * STRIKES
    assert all("not tried" in outcome[Pass.BWD].reason and reason in outcome[Pass.BWD].reason for outcome in found[STRIKES:])


def test_kernels_share_a_worker_unless_one_is_a_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hellos = list[Hello]()

    def start(limits: object, hello: Hello) -> FakeChild:
        hellos.append(hello)
        return type("Fresh", (FakeChild,), {"started": 0, "jobs": [], "behaviour": staticmethod(measured)})()

    monkeypatch.setattr(workers_module, "start_worker", start)
    suite = SUITE.changed(limits=msgspec.structs.replace(SUITE.limits, workers="one"))
    workers, jobs = workers_and_jobs(tmp_path, Entry("torch", {}), Entry("sdpa", {}), Entry("mine", {}, "mine.py"), suite=suite)
    for job in jobs:
        assert {outcome.status for _, outcome in outcomes(job, workers)} == {Status.OK}
    assert [hello.plugin for hello in hellos] == [None, "mine.py"]
    assert {hello.device_model for hello in hellos} == {"a CPU"}
