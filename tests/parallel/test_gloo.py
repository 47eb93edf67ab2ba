"""Real ranks: gloo processes compute the same as one process."""

from __future__ import annotations

import pytest

from longca.parallel import registry
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed
from parallel.running import case_of, mask_of, plan_if_taken
from parallel.test_comm import expected_collectives


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("mask", ["causal", "share_question", "global_sliding_window", "causal_document"])
def test_methods_on_gloo(pool: Pool, method: str, mask: str) -> None:
    grid = {"usp": "2x2", "loongtrain": "1x4x2", "mesh": "2x2"}.get(method, "")
    more = {"ring_p2p": {"kernel": "sdpa:flash"}, "magi": {"options": {"node": 3}}}.get(method, {})
    if plan_if_taken(method, mask_of(mask), case_of(197, (6, 2)), 4, grid) is None:
        return
    answers = pool.run("parallel.jobs:worst_error", dict(method=method, mask=mask, seqlen=197, heads=[6, 2], grid=grid, **more), 60)
    assert max(answer["error"] for answer in answers) < 2e-5
    assert all(answer["sent"] > 0 for answer in answers)


@pytest.mark.parametrize(
    ("method", "options"),
    [("ulysses", {}), ("ring_allgather", {}), ("block_cast", {}), ("block_cast", {"node": 2}), ("block_cast", {"node": 3})],
)
@pytest.mark.parametrize(("mask", "source"), [("uniform_block", "random"), ("uniform_block", "msa"), ("variable_block", "nsa")])
def test_block_patterns_on_real_ranks(ranks: Pool, method: str, options: dict[str, int], mask: str, source: str) -> None:
    asked = dict(method=method, mask=mask, seqlen=197, heads=[8, 4], grid="", options=options, source=source)
    answers = ranks.run("parallel.jobs:worst_error", asked, 60)
    assert max(answer["error"] for answer in answers) < 2e-5
    assert sum(answer["sent"] for answer in answers) > 0


def test_uneven_collectives_on_gloo(pool: Pool) -> None:
    assert pool.run("parallel.jobs:collectives", {}, 60) == [expected_collectives(rank, 4) for rank in range(4)]


def test_even_collectives_may_be_the_backends_own(pool: Pool) -> None:
    """The same numbers and bytes as pairs: uneven ones and sums of bf16, which would be rounded on the way, stay pairs."""
    for answer in pool.run("parallel.jobs:own_collectives", {}, 60):
        assert answer["pairs"] == answer["own"]
        assert answer["asked"] == ["all_gather", "all_gather", "reduce_scatter", "all_gather", "all_gather"]  # the last two are barriers


@pytest.mark.parametrize(("method", "grid", "sums"), [("ring_allgather", "", 2), ("mesh", "4x1", 1)])
@pytest.mark.parametrize(
    ("seqlen", "node", "own", "exact"),
    [(192, 1, True, False), (192, 2, True, True), (192, 2, False, False), (192, 4, True, False), (197, 2, True, False)],
)
def test_sums_over_nodes_are_the_backends_in_fp32(
    pool: Pool, method: str, grid: str, sums: int, seqlen: int, node: int, own: bool, exact: bool
) -> None:
    """Even ones of dk and dv, or of dq; inside a node, without the backend's own collectives, and where ranks have different numbers of
    tokens, bf16 travels in pairs."""
    args = dict(method=method, grid=grid, seqlen=seqlen, own=own, options={"node": node})
    for answer in pool.run("parallel.jobs:sums_over_nodes", args, 60):
        assert answer["types"] == ["torch.float32"] * sums * exact
        assert answer["sent"] == answer["recorded"]
        assert answer["error"] < 2e-2


@pytest.mark.parametrize(("method", "grid"), [("ring_allgather", ""), ("mesh", "2x2"), ("mesh", "4x1")])
def test_methods_with_the_backends_own_collectives(pool: Pool, method: str, grid: str) -> None:
    args = dict(method=method, mask="causal", seqlen=192, heads=[4, 4], grid=grid)
    own, pairs = (pool.run("parallel.jobs:worst_error", args | {"own": flag}, 60) for flag in (True, False))
    assert max(answer["error"] for answer in own) < 2e-5
    assert [answer["sent"] for answer in own] == [answer["sent"] for answer in pairs]


def test_a_job_that_is_refused_leaves_the_ranks_alone(pool: Pool) -> None:
    before = pool.run("parallel.jobs:greet", {}, 60)
    with pytest.raises(RankFailed, match="cannot share") as caught:
        pool.run("parallel.jobs:worst_error", dict(method="ulysses", mask="causal", seqlen=97, heads=[2, 2], grid=""), 60)
    assert caught.value.kind == "refused"
    assert pool.run("parallel.jobs:greet", {}, 60) == before
