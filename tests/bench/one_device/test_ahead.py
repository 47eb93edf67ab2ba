"""Compilers beside a worker, with children that do nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from longca.bench.one_device import ahead
from longca.bench.one_device.ahead import Compilers
from longca.bench.one_device.messages import WorkerJob
from longca.bench.one_device.worker import Worker
from longca.bench.plan.jobs import Job
from longca.bench.plan.suite import Suite
from longca.processes.lost import ChildLost
from made_cells import made_jobs

SUITE = Suite(kernels=("torch",), masks=("causal", "full"), seqlens=("16", "17", "18", "64K"), heads=("2:1",), head_dims=("8",))


class IdleChild:
    """Notes what it is told; a job takes until `finish`."""

    def __init__(self) -> None:
        self.busy, self.breaks, self.said = False, False, list[Any]()

    def step(self, wait_s: float) -> list[Any]:
        if self.breaks:
            raise ChildLost("error", "it broke")
        return []

    def send(self, job: Any, phase: str) -> None:
        assert job["compile_only"]
        self.busy = True
        problem = job["cells"][0]["problem"]
        self.said.append((problem["mask"], problem["seqlen"]))

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")

    def end(self) -> None:
        self.said.append("end")

    def close(self) -> None: ...


@pytest.fixture
def jobs() -> list[Job]:
    return made_jobs(SUITE)


def compilers(jobs: list[Job], number: int = 1) -> tuple[Compilers, list[IdleChild]]:
    children = [IdleChild() for _ in range(number)]
    started: Any = iter(children)
    return Compilers(jobs, lambda: next(started), number), children


def finish_all(beside: Compilers, child: IdleChild) -> list[Any]:
    """What the child is told until it is ended."""
    while "end" not in child.said:
        child.busy = False
        beside.enter("build")
    return child.said


def test_jobs_of_usual_lengths_are_compiled_in_order(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "QUICK_S", 0.0)
    beside, (child,) = compilers(jobs)
    said = finish_all(beside, child)
    assert said == [*((job.cell.problem.mask, job.cell.problem.seqlen) for job in jobs if job.cell.problem.seqlen < 64 << 10), "end"]


def test_a_kernel_that_is_ready_at_once_at_a_second_length_is_left_alone(jobs: list[Job]) -> None:
    beside, (child,) = compilers(jobs)
    said = finish_all(beside, child)
    lengths = {mask: [entry[1] for entry in said if entry[0] == mask] for mask in ("causal", "full")}
    assert lengths == {"causal": [16, 17], "full": [16, 17]}


def test_what_the_worker_does_itself_is_not_compiled(jobs: list[Job]) -> None:
    beside, children = compilers(jobs)
    for job in jobs[1:]:
        beside.reached(job)
    (first,) = [job.cell.problem for job in jobs[:1]]
    assert finish_all(beside, *children) == [(first.mask, first.seqlen), "end"]


def test_compilers_are_stopped_before_samples_are_taken(jobs: list[Job]) -> None:
    """From the check on, so that what they had called on the device is over when the first sample is taken."""
    beside, children = compilers(jobs, 2)
    for phases, words in ((("build",), []), (("check", "time", "time"), ["pause"]), (("build",), ["pause", "resume"])):
        for phase in phases:
            beside.enter(phase)
        assert [[word for word in child.said if isinstance(word, str)] for child in children] == [words] * 2


def test_a_compiler_that_breaks_is_dropped(jobs: list[Job]) -> None:
    beside, children = compilers(jobs, 2)
    children[0].breaks = True
    beside.enter("build")
    beside.enter("time")
    assert children[0].said == ["end"]
    assert children[1].said[-1] == "pause"


def test_a_compiler_gives_memory_back_after_each_job(jobs: list[Job], monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[bool] = []
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: given_back.append(True))
    worker, planned = Worker({"device": "cpu"}, lambda message: None, own_process=False), jobs[0].planned
    job = WorkerJob(cells=[entry.cell for entry in planned], digest=planned[0].mask.digest, compile_only=True)
    assert list(worker.handle(msgspec.to_builtins(job))) == []
    assert given_back
