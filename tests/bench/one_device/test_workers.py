"""Jobs of which a worker does not do all, or none."""

from collections.abc import Callable
from pathlib import Path

from longca.bench.one_device.workers import Workers
from longca.bench.plan.catalogue import Catalogue, Entry
from longca.bench.plan.suite import Suite
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Status
from made_cells import made_jobs

SUITE = Suite(kernels=("torch",), masks=("causal",), seqlens=("16", "17", "18", "19", "20"), heads=("2:1",), head_dims=("8",))


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
