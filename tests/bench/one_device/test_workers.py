"""Workers that break, in real processes and scripted: what is left of their jobs."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from longca.bench.one_device.workers import Workers
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.suite import Suite
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Record, Status
from made_cells import made_jobs

Start = Callable[..., "subprocess.Popen[str]"]
SUITE = Suite(kernels=("torch",), masks=("causal",), seqlens=("16", "17", "18", "19", "20"), heads=("2:1",), head_dims=("8",))


def measured(start: Start, out: Path, *arguments: object) -> list[Record]:
    with start(*arguments, "--out", out) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return read(out).records


@pytest.mark.slow
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
    jobs = made_jobs(SUITE)
    workers = Workers(SUITE, Catalogue({"torch": Entry("torch", {})}), "cpu", "a CPU", tmp_path, full=False)
    try:
        workers.start(jobs)
        workers.release(jobs[0])
        assert [outcome.status for _, outcome in workers.attempt(jobs[1])] == [Status.OK, Status.OK]
    finally:
        workers.close()
