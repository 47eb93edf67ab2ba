"""Plans: what is cut by one plan and computed by it is what one rank computes, and wrong use is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import longca
from longca import masks, parallel
from longca.errors import BadInput, Refused
from longca.kernels import registry as kernels
from longca.kernels.base import No
from longca.parallel.group import neighbours
from longca.processes.pool import Pool
from longca.processes.ranks import RankFailed

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_context_parallel.py"


def plans(mask: Any, ranks: int, heads: Any = (8, 8), **settings: Any) -> list[parallel.Plan]:
    return [parallel.Planner(rank, ranks).plan(mask, heads, 8, **settings) for rank in range(ranks)]


@pytest.mark.parametrize("method", ["ulysses", "ring_p2p", "magi", "usp", "hybrid_dcp", "halo"])
def test_every_token_is_on_one_rank(method: str) -> None:
    made = plans(masks.causal_document(101, documents=[50, 1, 50]), 4, method=method)
    whole = torch.arange(101 * 2).view(101, 2)
    pieces = [plan.shard(whole) for plan in made]
    assert torch.equal(torch.cat(pieces).sort(0).values, whole)
    assert all(torch.equal(piece[:, 0] // 2, plan.rows) for piece, plan in zip(pieces, made, strict=True))
    assert len({plan.digest for plan in made}) == 1


def test_labels_are_shifted_over_the_whole_sequence_and_not_over_documents() -> None:
    lengths, text = (3, 1, 6), torch.arange(10)
    wanted = torch.tensor([1, 2, -100, -100, 5, 6, 7, 8, 9, -100])
    for batch in ({"labels": text, "ids": text}, {"labels": text.expand(2, -1), "ids": text.expand(2, -1)}):
        for plan in plans(masks.causal_document(10, documents=lengths), 2):
            own = plan.shard(batch)
            assert set(own) == {"shift_labels", "ids"}  # a model that would shift labels finds none
            assert torch.equal(own["shift_labels"], wanted[plan.rows].expand(own["ids"].shape))
            assert torch.equal(own["ids"], plan.rows.expand(own["ids"].shape))
            assert plan.labelled == 7 * batch["labels"].numel() // 10
            with pytest.raises(BadInput, match="sharded already"):
                plan.shard(own)
    (alone,) = plans(masks.causal(10), 1)
    assert alone.shard({"labels": text})["shift_labels"].tolist() == [*range(1, 10), -100]
    (layers,) = plans({"global": masks.causal(10), "local": masks.causal_document(10, documents=lengths)}, 1)
    assert torch.equal(layers.shard({"labels": text})["shift_labels"], wanted[layers.rows])


def test_what_cannot_be_planned_is_refused() -> None:
    mask = masks.causal(64)
    for error, sentence, given in (
        (Refused, "query heads", dict(heads=(2, 2), method="ulysses")),
        (BadInput, "must be whole numbers of 1 or more", dict(heads=(0, 2))),
        (BadInput, "must be whole numbers of 1 or more", dict(heads="64:8")),
        (BadInput, r"must be one of longca\.masks", dict(mask="causal")),
        (BadInput, "these have lengths", dict(mask={"a": mask, "b": masks.causal(32)})),
        (BadInput, "how many layers each", dict(mask={"a": mask, "b": mask}, layers={"a": 3})),
    ):
        settings: dict[str, Any] = {"mask": mask, "ranks": 4} | given
        with pytest.raises(error, match=sentence):
            plans(**settings)
    assert plans(mask, 2, heads=(np.int64(4), np.int64(2)))[0].heads == (4, 2)


def test_a_method_where_none_is_named() -> None:
    causal, window = masks.causal(256), masks.sliding_window_causal(256, w=16)
    blocks = masks.build("uniform_block", 256, b=32, ratio=0.5, seed=0)
    documents = masks.causal_document(256, documents=[100, 156])
    for mask, method in ((causal, "usp"), (documents, "magi"), (window, "magi"), (blocks, "ring_allgather")):
        assert plans(mask, 2)[0].method == method
    assert plans({"global": causal, "local": window}, 2)[0].method == "magi"


def test_one_partition_balances_all_layers_together() -> None:
    """Under a causal and a window mask alone, ranks would have other tokens; work is even for the sum, with weights."""
    kinds = {"global": masks.causal(4096), "local": masks.sliding_window_causal(4096, w=64)}
    for layers in ({"global": 1, "local": 1}, {"global": 1, "local": 40}):
        plan = plans(kinds, 4, layers=layers)[0]
        work = [sum(count * kinds[name].rows(shard).area for name, count in layers.items()) for shard in plan.shards]  # type: ignore[arg-type]
        assert max(work) * 4 <= 1.05 * sum(work)


def test_neighbours_that_share_a_node() -> None:
    for members, ranks_per_node, n in (
        (range(16), 8, 8),
        (range(4, 12), 8, 4),  # half of one node and half of the next
        (range(12), 8, 8),  # the last node has fewer
        (range(4, 16), 8, 0),  # the first node has fewer
        (range(0, 64, 8), 8, 1),
        (range(0, 16, 2), 8, 4),
        ((0, 8, 1, 9), 8, 0),
        ((5,), 8, 1),
    ):
        assert neighbours([member // ranks_per_node for member in members]) == n


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """A group of one rank."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'first'}", rank=0, world_size=1)
    yield tmp_path
    dist.destroy_process_group()


def test_ranks_may_be_initialised_anew(alone: Path) -> None:
    mask, q = masks.causal(16), torch.randn(16, 4, 8)

    def attend(cp: parallel.Group) -> torch.Tensor:
        plan = cp.plan(mask, heads=(4, 4), head_dim=8)
        return plan.gather(plan.attention(*(plan.shard(x) for x in (q, q.clone(), q.clone()))))

    cp = parallel.Group()
    first = attend(cp)
    dist.destroy_process_group()
    with pytest.raises(BadInput, match=r"call torch\.distributed\.init_process_group first"):
        parallel.Group()
    dist.init_process_group("gloo", init_method=f"file://{alone / 'second'}", rank=0, world_size=1)
    with parallel.Group() as again:
        assert torch.equal(attend(again), first)
    with pytest.raises(BadInput, match="its group is closed"):
        attend(again)


@pytest.mark.usefixtures("alone")
def test_a_plan_calls_no_communicator_of_a_closed_group() -> None:
    q, mask = torch.randn(16, 4, 8), masks.causal(16)
    with parallel.Group() as first, parallel.Group() as second:
        plan = first.plan(mask, heads=(4, 4), head_dim=8)
        before = plan.attention(*(plan.shard(x) for x in (q, q.clone(), q.clone())))
        moved = second.use(plan)
        first.close()
        with pytest.raises(BadInput, match="its group is closed"):
            plan.attention(q, q, q)
        assert torch.equal(moved.attention(q, q, q), before)


@pytest.mark.usefixtures("alone")
def test_a_second_derivative_is_refused() -> None:
    with parallel.Group() as cp:
        plan = cp.plan(masks.causal(16), heads=(4, 4), head_dim=8, kernel="torch:chunked")
        q, k, v = (plan.shard(torch.randn(16, 4, 8)).requires_grad_() for _ in range(3))
        for out in (plan.attention(q, k, v), plan.gather(q)):
            (dq,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
            with pytest.raises(RuntimeError, match="twice"):
                dq.sum().backward()


@pytest.mark.usefixtures("alone")
def test_a_mean_is_over_all_ranks_tokens_or_labels() -> None:
    with parallel.Group() as cp:
        plan = cp.plan(masks.causal(16), heads=(4, 4), head_dim=8)
        assert plan.mean(torch.full((16, 16), 3.0), total=256) == 3
        assert plan.mean(torch.ones(16), total=0.5) == 32
        with pytest.raises(BadInput, match="has no axis of this rank's 16 tokens"):
            plan.mean(torch.ones(15), total=15)
        labels = plan.shard({"labels": torch.arange(16)})["shift_labels"]
        labels[:8] = -100  # labels count as they are now
        assert plan.mean(torch.ones(16), labels) == 1
        assert plan.mean(torch.ones(16), labels.fill_(-100)) == 0


@pytest.mark.usefixtures("alone")
def test_each_entry_of_a_batch_has_the_block_patterns_of_all_heads() -> None:
    mask = masks.build("uniform_block", 64, b=8, ratio=0.5, heads=2, seed=0)
    q, k, v = (torch.randn(3, 64, heads, 8) for heads in (4, 2, 2))
    with parallel.Group() as cp:
        plan = cp.plan(mask, heads=(4, 2), head_dim=8, kernel="torch:chunked")
        out = plan.attention(*(plan.shard(x) for x in (q, k, v)))
        for entry, *tensors in zip(out, q, k, v, strict=True):
            assert torch.allclose(entry, longca.attention(*tensors, mask, kernel="torch:chunked"), atol=1e-5)


@pytest.mark.usefixtures("alone")
def test_tensors_that_do_not_fit_are_one_sentence() -> None:
    q = torch.randn(16, 4, 8)
    wrong: list[tuple[Any, str]] = [
        ((q, q, q.bfloat16()), "share one dtype of"),
        ((q.int(),) * 3, "share one dtype of"),
        ((q, q[:, :2], q), "attention takes q"),
        ((q[0],) * 3, "attention takes q"),
        ((q, q.to("meta"), q), "must lie on one device"),
        ((q.numpy(), q, q), r"q must be a torch\.Tensor"),
        ((q[:8],) * 3, "this rank has 16 tokens in this plan"),
        ((q[:, :2],) * 3, r"the plan is for heads=\(4, 4\)"),
    ]
    plan = parallel.Group().plan(masks.causal(16), heads=(4, 4), head_dim=8)
    plan.shard(q)
    for tensors, sentence in wrong:
        with pytest.raises(BadInput, match=sentence):
            plan.attention(*tensors)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"method": "ring_p2p", "sinks": True},
        {"method": "hybrid_dcp"},
        {"method": "mesh"},
        {"method": "usp", "grid": "2x2", "sinks": True},
        {"method": "ulysses", "batch": 3, "sinks": True},
        {"method": "magi", "batch": 3, "deterministic": True},
    ],
    ids=str,
)
def test_attention_and_gradients_are_those_of_one_rank(ranks: Pool, settings: dict[str, Any]) -> None:
    answers = ranks.run("parallel.plan_jobs:attention", settings | {"kernel": "torch:chunked"}, 120)
    assert max(answer["error"] for answer in answers) < 1e-10
    assert sum(answer["tokens"] for answer in answers) == 100


@pytest.mark.parametrize(("method", "documents"), [(None, True), ("usp", False), ("ring_p2p", True)])
def test_layers_with_different_masks_share_one_partition(pool: Pool, method: str | None, documents: bool) -> None:
    answers = pool.run("parallel.plan_jobs:several_masks", {"method": method, "documents": documents}, 60)
    assert max(answer["error"] for answer in answers) < 1e-12


def test_wrong_use_is_told_on_every_rank_and_nothing_hangs(pool: Pool) -> None:
    sentences = {
        "another plan": "sharded by another plan",
        "nothing sharded": "this plan has sharded nothing",
        "labels of another plan": "sharded by another plan",
        "twice": "sharded already",
        "short": "this rank has 25 tokens",
        "heads": "the plan is for heads=(4, 2)",
        "uncut": "has no axis of all 100 tokens",
        "no name": "the plan has no mask 'local'",
        "other mask on a rank": "the mask is 'mask'",
        "other method on a rank": "the plan is magi",
        "other ids on a rank": "the sum of the batch is",
        "compiled on a rank": "the pass is forward and backward, compiled on rank 1",
        "no gradient on a rank": "the pass is forward alone on rank 1",
        "compiled peer": "torch.compile cannot use the backward of torch_cp, another project's method; compile around it.",
    }
    for heard in pool.run("parallel.plan_jobs:misuse", {}, 60):
        assert {name: sentence in heard[name] for name, sentence in sentences.items()} == dict.fromkeys(sentences, True), heard


@pytest.mark.slow
def test_a_rank_that_waits_for_a_call_that_no_other_makes_says_so(pool: Pool) -> None:
    with pytest.raises(RankFailed, match=r"has waited 1 s for all ranks to call this attention .*: the mask is 'mask'"):
        pool.run("parallel.plan_jobs:only_one_is_new", {"patience": 1}, 15)


def test_a_plan_and_its_batch_may_come_from_another_process(pool: Pool) -> None:
    assert max(pool.run("parallel.plan_jobs:planned_elsewhere", {}, 60)) < 1e-12


def test_a_prepared_plan_prepares_nothing_in_its_step(pool: Pool) -> None:
    assert pool.run("parallel.plan_jobs:prepared_ahead", {}, 60) == [{"made": 0, "programs": 2}] * 4


def test_ranks_forget_the_same_plans_when_their_bytes_are_too_many(pool: Pool) -> None:
    """Ranks prepare tables of different sizes. A rank that still had a plan which others forgot would not meet them again."""
    many, few, all_ = (pool.run("parallel.plan_jobs:cache", {"cache_bytes": size}, 60) for size in (10_000, 1, 1 << 30))
    assert {len(answer["kept"]) for answer in all_} == {6}
    assert {len(answer["kept"]) for answer in few} == {1}
    assert {len(answer["kept"]) for answer in many} < {2, 3, 4, 5}
    for answers in (many, few, all_):
        assert all(answer["kept"] == answers[0]["kept"] and answer["error"] < 1e-12 for answer in answers)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_gradient_of_gathered_tokens_is_the_sum_over_ranks(ranks: Pool, compiled: bool) -> None:
    """Compiled without graph break."""
    assert max(ranks.run("parallel.plan_jobs:gathering", {"compiled": compiled}, 200)) < 1e-5


def test_a_gradient_of_gathered_tokens_is_rounded_once(pool: Pool) -> None:
    assert all(pool.run("parallel.plan_jobs:rounded_gather_gradient", {}, 60))


def test_ranks_agree_about_nodes(pool: Pool) -> None:
    """Nodes of one size are known, also of a part of the ranks; heads are exchanged inside a node."""
    everyone = [0, 1, 2, 3]
    for nodes, members, node, grid in (
        ([0, 0, 1, 1], everyone, 2, "2x2"),
        ([0, 0, 0, 0], everyone, 4, "4x1"),
        ([0, 1, 1, 1], everyone, 0, "1x4"),
        ([0, 1, 2, 3], everyone, 1, "1x4"),
        ([0, 0, 1, 1], [0, 2], 1, "1x2"),
    ):
        answers = pool.run("parallel.plan_jobs:default_options", {"nodes": nodes, "method": "usp", "members": members}, 60)
        assert answers == [{"node": node, "options": {}, "grid": grid} if rank in members else {} for rank in range(4)]


def test_ranks_choose_a_method_once_for_a_kind_of_plan(pool: Pool) -> None:
    """All ranks choose alike, other documents and similar lengths keep the method, and the first rank logs it."""
    h100 = "NVIDIA H100 80GB HBM3"
    for gpus, reason in (([h100] * 4, "by simulation on h100-ib"), ([h100, "", h100, h100], "by the rule")):
        answers = pool.run("parallel.plan_jobs:chosen_method", {"gpus": gpus}, 60)
        first = answers[0]
        assert all(answer["methods"] == first["methods"] for answer in answers)
        assert first["methods"][0] == first["methods"][1] == first["elsewhere"]
        assert first["methods"][2] == first["methods"][3]
        assert [reason in line and "method= names another" in line for line in first["log"]] == [True, True]
        assert not any(answer["log"] for answer in answers[1:])


@pytest.mark.usefixtures("alone")
def test_a_group_left_by_an_error_waits_for_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[bool]()
    monkeypatch.setattr(parallel.Group, "close", lambda self, at_once=False: closed.append(at_once))
    with parallel.Group():
        pass
    with pytest.raises(KeyError), parallel.Group():
        raise KeyError
    assert closed == [False, True]


@pytest.mark.parametrize(
    ("case", "method"),
    [
        *((case, None) for case in ("plain", "data and tensor", "checkpoint", "fsdp", "batch", "autocast")),
        *(pytest.param(case, None, marks=pytest.mark.slow) for case in ("data", "tensor")),
        *(pytest.param("compile", method, marks=pytest.mark.slow) for method in ("magi", "usp")),  # without graph break
    ],
)
def test_training_has_the_losses_of_one_rank(ranks: Pool, case: str, method: str | None) -> None:
    on_gpu = ranks.backend == "nccl"
    asked = {"case": case, "method": method, "kernel": "torch:chunked" if on_gpu else None}
    for answer in ranks.run("parallel.plan_jobs:train", asked, 200):
        tolerance = (5e-3 if on_gpu else 2e-3) if case == "autocast" else (1e-4 if on_gpu else 2e-6)
        assert answer["shared"] == pytest.approx(answer["alone"], abs=tolerance)
        assert answer["alone"][0] > answer["alone"][-1]


@pytest.mark.slow
def test_the_example_gets_the_same_losses_on_two_ranks() -> None:
    environment = os.environ | {"METHOD": "usp", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    alone, shared = ([float(word) for word in line.split()[2:]] for line in done.stdout.splitlines()[:2])
    assert alone == pytest.approx(shared, abs=2e-5)
    assert alone[0] > alone[-1] + 0.5


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["ulysses", "ring_allgather", "ring_p2p", "magi"])
@pytest.mark.parametrize("kernel", ["torch:chunked", "fa4"])
def test_a_cuda_graph_of_a_fixed_plan_computes_what_the_plan_computes(nccl_pool: Pool, method: str, kernel: str) -> None:
    if isinstance(kernels.available(kernels.get(kernel), "cuda"), No):
        pytest.skip(f"{kernel} is not available")
    assert max(nccl_pool.run("parallel.plan_jobs:graphed", {"method": method, "kernel": kernel}, 200)) == 0


@pytest.mark.gpu
def test_preparing_a_plan_does_not_wait_for_the_gpu(nccl_pool: Pool) -> None:
    """The GPU still computes what it had before when the kernels of the next plan are prepared."""
    assert all(nccl_pool.run("parallel.plan_jobs:prepared_beside", {}, 120))
