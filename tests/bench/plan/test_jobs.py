"""From planned cells to jobs: their order, shards, and what a journal leaves to do."""

import pytest
from msgspec.structs import replace

from bench.plan.test_cells import SMALL, planned
from longca.bench.plan.estimate import estimates_s
from longca.bench.plan.jobs import make_jobs, shard
from longca.errors import BadInput
from longca.results.problem import Pass


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


def test_a_forward_alone_has_neither_backward_passes_nor_their_memory() -> None:
    (job,) = make_jobs(planned(replace(SMALL, masks=("causal",), seqlens=(64,), passes=tuple(Pass))))
    alone = job.forward_alone
    assert (alone.passes, alone.cell.grad, alone.reference_grad) == ([Pass.FWD], False, True)
    assert alone.planned[0].key == job.planned[0].key  # its record takes the place of the planned one
    assert alone.cell.problem == job.cell.problem
