"""Real ranks: gloo processes compute the same as one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from longca.parallel import registry
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from parallel.test_comm import expected_collectives


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(4) as ranks:
        yield ranks


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("mask", ["causal", "share_question", "global_sliding_window"])
def test_methods_on_gloo(pool: Pool, method: str, mask: str) -> None:
    grid = {"usp": "2x2", "loongtrain": "1x4x2"}.get(method, "")
    answers = pool.run("parallel.jobs:worst_error", dict(method=method, mask=mask, seqlen=197, heads=[6, 2], grid=grid), 60)
    assert max(answer["error"] for answer in answers) < 2e-5
    assert all(answer["sent"] > 0 for answer in answers)


def test_another_kernel_on_gloo(pool: Pool) -> None:
    args = dict(method="ring_p2p", mask="causal", seqlen=197, heads=[4, 2], grid="", kernel="sdpa:flash")
    assert max(answer["error"] for answer in pool.run("parallel.jobs:worst_error", args, 60)) < 2e-5


def test_uneven_collectives_on_gloo(pool: Pool) -> None:
    assert pool.run("parallel.jobs:collectives", {}, 60) == [expected_collectives(rank, 4) for rank in range(4)]


def test_ranks_that_have_made_different_numbers_of_groups_can_make_one_together(pool: Pool) -> None:
    assert pool.run("parallel.jobs:uneven_groups", {}, 60) == [[1, 3, 6], [1, 3, 3, 6], [3, 3, 6, 5], [6, 5]]


def test_a_job_that_is_refused_leaves_the_ranks_alone(pool: Pool) -> None:
    before = pool.run("parallel.jobs:greet", {}, 60)
    with pytest.raises(RankFailed, match="cannot share") as caught:
        pool.run("parallel.jobs:worst_error", dict(method="ulysses", mask="causal", seqlen=97, heads=[2, 2], grid=""), 60)
    assert caught.value.kind == "refused"
    assert pool.run("parallel.jobs:greet", {}, 60) == before
