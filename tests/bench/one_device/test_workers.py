"""Workers that break, in real processes and scripted: what is left of their jobs."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from longca.bench.one_device import workers as workers_module
from longca.bench.one_device.messages import Answer, Chosen, DeviceLost, Reply
from longca.bench.one_device.workers import Workers
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.cells import make_cells, plan
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.run.retry import outcomes
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Outcome, Record, Status
from longca.results.settings import Limits

Start = Callable[..., "subprocess.Popen[str]"]
SUITE = Suite(kernels=("torch",), masks=("causal",), seqlens=("16", "17", "18", "19", "20"), heads=("2:1",), head_dims=("8",))
OK = Outcome(status=Status.OK)


def measured(start: Start, out: Path, *arguments: object) -> list[Record]:
    with start(*arguments, "--out", out) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return read(out).records


def test_a_backward_that_ends_the_process_does_not_hide_the_forward(start_run: Start, tmp_path: Path, plugins: Path) -> None:
    records = measured(start_run, tmp_path, "--plugin", plugins / "backward_breaks.py", "--kernels", "backward_breaks")
    forward, backward = sorted(records, key=lambda record: record.problem.pass_ is Pass.BWD)
    assert (forward.status, backward.status) == (Status.OK, Status.ERROR)
    assert "exit code 9" in backward.reason
    assert (forward.grad, forward.planned_grad) == (False, True)


def test_a_forward_that_a_kernel_refuses_alone_is_not_timed(run_here: Callable[..., int], tmp_path: Path, plugins: Path) -> None:
    asked = ("--plugin", plugins / "only_backward.py", "--kernels", "only_backward", "--passes", "fwd,bwd,fwd+bwd", "--out", tmp_path)
    assert run_here(*asked) == 0
    found = {record.problem.pass_: record for record in read(tmp_path).records}
    assert {pass_: record.status for pass_, record in found.items()} == {
        Pass.FWD: Status.UNSUPPORTED,
        Pass.BWD: Status.OK,
        Pass.BOTH: Status.OK,
    }
    assert found[Pass.FWD].reason == "only_backward has no forward of its own"


def test_a_worker_that_is_still_starting_can_be_released(tmp_path: Path) -> None:
    """A resumed run may skip all jobs of its first problem."""
    jobs = make_jobs(plan(make_cells(SUITE, ["torch"], "cpu"), "a CPU", {"torch": {}}))
    workers = Workers(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, full=False, timed=False)
    try:
        workers.start(jobs)
        workers.release(jobs[0])
        assert [outcome.status for _, outcome in workers.attempt(jobs[1])] == [Status.OK, Status.OK]
    finally:
        workers.close()


def test_a_wrong_kernel_whose_next_call_hangs_stays_wrong(tmp_path: Path, plugins: Path) -> None:
    suite = SUITE.changed(seqlens=("16",), passes=(Pass.FWD,), limits=Limits(check_s=2))
    entry = Entry("wrong_then_hangs", {}, plugin=str(plugins / "hostile.py"))
    (job,) = make_jobs(plan(make_cells(suite, [entry.label], "cpu"), "a CPU", {entry.label: {}}))
    workers = Workers(suite, Catalogue({entry.label: entry}), "cpu", "a CPU", tmp_path, full=False, timed=False)
    try:
        ((_, outcome),) = workers.attempt(job)
    finally:
        workers.close()
    assert outcome.status is Status.WRONG
    assert outcome.check is not None
    assert outcome.check["out"].error > outcome.check["out"].allowed
    assert outcome.reason.startswith("out is off by ")
    assert outcome.reason.endswith("; in a later call checking took longer than its 2 s")


class ScriptedWorker:
    """A worker process that answers as a script says, until it is closed."""

    def __init__(self, script: Callable[[list[Pass], bool], Iterator[Reply]]) -> None:
        self._script, self._open = script, True

    def wait_ready(self) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None:
        self._open = False

    def take_seconds(self) -> dict[str, float]:
        assert self._open
        return {"build": 2.0, "check": 1.0}

    def run(self, job: dict[str, list[dict[str, Any]]]) -> Iterator[Reply]:
        assert self._open
        cells = job["cells"]
        yield from self._script([Pass(cell["problem"]["pass"]) for cell in cells], bool(cells[0]["grad"])) if cells else ()


Script = Callable[[list[Pass], bool], Iterator[Reply]]


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], tuple[Workers, list[Job]]]:
    def make(script: Script) -> tuple[Workers, list[Job]]:
        monkeypatch.setattr(workers_module, "start_worker", lambda limits, hello: ScriptedWorker(script))
        planned = plan(make_cells(SUITE, ["torch"], "cpu"), "a CPU", {"torch": {}})
        return Workers(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, full=False), make_jobs(planned)

    return make


Scripted = Callable[[Script], tuple[Workers, list[Job]]]


def test_a_device_that_is_lost_before_any_answer_costs_the_backward_alone(scripted: Scripted) -> None:
    def script(passes: list[Pass], grad: bool) -> Iterator[Reply]:
        yield from [DeviceLost()] if grad else (Answer(pass_, OK) for pass_ in passes)

    workers, (job, *_) = scripted(script)
    lost = Outcome(status=Status.ERROR, reason="it lost its device", grad=True)
    assert dict(outcomes(job, workers)) == {Pass.FWD: OK, Pass.BWD: lost}


def test_a_forward_that_is_left_of_a_job_has_a_worker_of_its_own_when_the_device_is_lost(scripted: Scripted) -> None:
    def script(passes: list[Pass], grad: bool) -> Iterator[Reply]:
        yield from [DeviceLost()] if grad else (Answer(pass_, OK) for pass_ in passes)

    workers, (job, *_) = scripted(script)
    left = replace(job, planned=tuple(entry for entry in job.planned if entry.cell.problem.pass_ is Pass.FWD))
    assert left.cell.grad
    assert dict(outcomes(left, workers)) == {Pass.FWD: OK}


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ([Answer(Pass.FWD, OK)], "its process sent a reply that nobody asked for"),
        ([Answer(Pass.BOTH, OK)], "its process sent a reply that nobody asked for"),
        ([], "its process ended the job without an answer"),
    ],
)
def test_answers_that_nobody_asked_for_or_that_are_missing_cost_their_cell(second: list[Reply], reason: str, scripted: Scripted) -> None:
    """A kernel can write to its worker's channel."""

    def script(passes: list[Pass], grad: bool) -> Iterator[Reply]:
        yield Chosen("torch", grad)
        yield Answer(Pass.FWD, OK)
        yield from second

    workers, jobs = scripted(script)
    found = [dict(outcomes(job, workers)) for job in jobs]
    assert [outcome[Pass.FWD].status for outcome in found[:3]] == [Status.OK] * 3
    assert [(outcome[Pass.BWD].status, outcome[Pass.BWD].reason) for outcome in found[:3]] == [(Status.ERROR, reason)] * 3
    assert all("not tried" in outcome[Pass.BWD].reason and reason in outcome[Pass.BWD].reason for outcome in found[3:])
