"""From planned cells to jobs: their order, shards, and what a journal leaves to do."""

import pytest
from msgspec.structs import replace

from longca.bench.plan.cells import Planned, make_cells, plan
from longca.bench.plan.estimate import estimates_s
from longca.bench.plan.jobs import left_to_do, make_jobs, shard
from longca.bench.plan.suite import Suite
from longca.bench.run.record import make_record
from longca.errors import BadInput
from longca.results.problem import Pass
from longca.results.record import RETRIED, Outcome, Status, Times

SMALL = Suite(kernels=("torch",), masks=("causal", "causal_document"), seqlens=("1K", "512"), heads=("4:2",), head_dims=("32",))
VERSIONS = {"torch": {"torch": "2"}, "sdpa": {"torch": "2"}}


def planned(suite: Suite, kernels: tuple[str, ...] = ("torch",)) -> list[Planned]:
    return plan(make_cells(suite, kernels, "cpu"), "a CPU", VERSIONS)


def test_an_estimate_counts_each_query_head_once() -> None:
    base = replace(SMALL, masks=("full",), seqlens=("8K",), heads=("16:16",), passes=(Pass.FWD,))
    blocks = replace(base, masks=("uniform_block",), params={"uniform_block": {"ratio": 1.0}})
    assert list(estimates_s(planned(blocks), blocks).values()) == pytest.approx(list(estimates_s(planned(base), base).values()))


def test_jobs_hold_the_passes_of_a_kernel_and_problems_come_one_by_one() -> None:
    jobs = make_jobs(planned(SMALL, ("torch", "sdpa")))
    assert [tuple(entry.cell.problem.pass_ for entry in job.planned) for job in jobs] == [(Pass.FWD, Pass.BWD)] * len(jobs)
    problems = [job.cell.problem for job in jobs]
    assert problems == sorted(problems, key=problems.index)  # every problem once, in a row
    assert all(job.last for job in jobs)  # each worker has one job per problem here
    shared = make_jobs(planned(SMALL, ("torch", "sdpa")), "one")
    assert [job.last for job in shared] == [False, True] * (len(jobs) // 2)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_shards_split_everything_and_share_nothing(parts: int) -> None:
    entries = planned(replace(SMALL, masks=("all",)), ("torch", "sdpa"))
    found = [shard(entries, f"{part}/{parts}") for part in range(1, parts + 1)]
    assert sorted(entry.key for part in found for entry in part) == sorted(entry.key for entry in entries)
    problems = [{entry.cell.problem for entry in part} for part in found]
    assert sum(map(len, problems)) == len(set().union(*problems))


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/2/3"])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="is not a shard"):
        shard([], text)


def test_what_is_left_to_do() -> None:
    """Everything without a record; failures again with --retry, what a rule skipped with --full, and neither otherwise."""
    entries = planned(replace(SMALL, passes=tuple(Pass), seeds=2))
    outcomes = {
        Status.OK: Outcome(status=Status.OK, ms=Times(1.0, 1.0, 1.0, [1.0]), tflops=1.0),
        **{status: Outcome(status=status, reason="O(S²) is too much") for status in (*sorted(RETRIED), Status.SKIPPED, Status.UNSUPPORTED)},
    }
    done = dict(zip(outcomes, entries, strict=False))
    assert len(done) == len(outcomes) < len(entries)
    records = {entry.key: make_record(entry, outcomes[status], "env") for status, entry in done.items()}
    rest = {entry.key for entry in entries} - set(records)

    def left(retry: bool = False, full: bool = False) -> set[str]:
        return {entry.key for entry in left_to_do(entries, records, retry=retry, full=full)} - rest

    assert rest <= {entry.key for entry in left_to_do(entries, records)}
    assert left() == set()
    assert left(retry=True) == {done[status].key for status in RETRIED}
    assert left(full=True) == {done[Status.SKIPPED].key}
    assert left(retry=True, full=True) == left(retry=True) | left(full=True)


def test_a_forward_alone_has_neither_backward_passes_nor_their_memory() -> None:
    (job,) = make_jobs(planned(replace(SMALL, masks=("causal",), seqlens=(64,), passes=tuple(Pass))))
    alone = job.forward_alone
    assert (alone.passes, alone.cell.grad, alone.reference_grad) == ([Pass.FWD], False, True)
    assert alone.planned[0].key == job.planned[0].key  # its record takes the place of the planned one
    assert alone.cell.problem == job.cell.problem
