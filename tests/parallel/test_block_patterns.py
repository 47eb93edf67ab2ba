"""Block patterns, one per KV head, over many ranks: by the rule that comes before every clock, and what moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from longca import masks
from longca.errors import Refused
from longca.kernels import block_selection
from longca.kernels.block_lists import block_size
from longca.masks import BlockMask
from longca.parallel import block_balance, ranges, registry, sharding
from longca.parallel.comm.trace import TraceComm
from longca.parallel.method import Plan
from longca.parallel.recording import record
from longca.results import metrics
from parallel.running import case_of, plan_of, run_local, sent_both_ways, verdict_of

METHODS = ("ulysses", "ring_allgather", "block_cast")
OTHERS = [name for name in registry.names() if registry.get(name).no_blocks]
SEQLEN = 197  # a prime: its last block has 5 tokens


def pattern(heads: int, seqlen: int = SEQLEN, b: int = 16) -> BlockMask:
    return masks.uniform_block(seqlen, seed=5, b=b, ratio=0.4, heads=heads)


def selected_pattern(source: str, heads: tuple[int, int]) -> BlockMask:
    few = {"top": 4} if source == "msa" else {"ratio": 0.4}
    return block_selection.from_seed("uniform_block", SEQLEN, source, 5, block_selection.Heads(*heads, 8), b=16, **few)


def assert_right(plan: Plan) -> None:
    verdict = verdict_of(plan)
    assert set(verdict.errors) == {"out", "lse", "dq", "dk", "dv"}
    assert verdict.ok, verdict.reason


VARIABLE = masks.variable_block(SEQLEN, seed=2, avg=20, least=7, heads=4)
SHAPES = [  # a mask, heads, ranks
    # with 8:2 heads on 4 and 8 ranks a KV head and its pattern are shared by several ranks
    *((pattern(heads[1]), heads, ranks) for heads in ((8, 4), (8, 2)) for ranks in (1, 2, 3, 4, 8)),
    (pattern(3), (9, 3), 2),  # KV heads that the ranks do not divide
    (pattern(1), (8, 4), 4),  # one pattern for all heads
    (pattern(2, 41), (8, 2), 8),  # fewer blocks than ranks
    (pattern(4, 256, 64), (8, 4), 4),
    (VARIABLE, (8, 4), 3),
    (VARIABLE, (8, 4), 4),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("mask", "heads", "ranks"), SHAPES, ids=lambda value: "" if isinstance(value, BlockMask) else str(value))
def test_one_pattern_per_kv_head(mask: BlockMask, heads: tuple[int, int], ranks: int, method: str) -> None:
    assert all((mask.kept[0] != mask.kept[head]).any() for head in range(1, mask.heads))
    assert_right(plan_of(method, mask, case_of(mask.seqlen_q, heads), ranks))


SPLITS = (((8, 4), 4), ((8, 2), 8), ((9, 3), 3))
SOURCES = ("nsa", "moba", "msa")


@pytest.mark.parametrize(
    ("method", "heads", "ranks", "source"),
    [  # in `make test` any two of method, split and source meet
        pytest.param(METHODS[m], *SPLITS[s], SOURCES[n], marks=[pytest.mark.slow] * ((m + s + n) % 3 > 0))
        for m, s, n in product(range(3), repeat=3)
    ],
)
def test_blocks_that_queries_and_keys_select_under_a_causal_mask(method: str, heads: tuple[int, int], ranks: int, source: str) -> None:
    mask = selected_pattern(source, heads)
    assert mask.band is not None
    assert_right(plan_of(method, mask, case_of(SEQLEN, heads), ranks))


@pytest.mark.parametrize("method", METHODS)
def test_a_band_on_top_that_is_lost_would_be_found_out(method: str) -> None:
    right = selected_pattern("nsa", (8, 4))
    bare = BlockMask(right.row_edges, right.col_edges, right.kept)
    assert bare.area > right.area
    assert not verdict_of(plan_of(method, bare, case_of(SEQLEN, (8, 4)), 4), right).ok


@pytest.mark.parametrize("method", METHODS)
def test_rows_and_keys_without_any_block(method: str) -> None:
    """Head 0 sees nothing of rows 32..63; nobody sees the first and the last key blocks; one head sees nothing at all."""
    mask = pattern(4)
    kept = mask.kept.copy()
    kept[0, 2:4] = False
    kept[:, :, [0, -1]] = False
    kept[2] = False
    mask = BlockMask(mask.row_edges, mask.col_edges, kept)
    plan = plan_of(method, mask, case_of(SEQLEN, (8, 4)), 4)
    assert_right(plan)
    results = run_local(plan)
    assert torch.isneginf(results.lse[:2, 32:64]).all()
    assert torch.isneginf(results.lse[4:6]).all()
    assert (results.out[:, 4:6] == 0).all()
    assert all((x[:16] == 0).all() for x in (results.dk, results.dv))
    assert all(x.isfinite().all() for x in (results.out, results.dq, results.dk, results.dv))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("heads", [(8, 4), (8, 2)])
def test_the_pattern_of_another_head_would_be_found_out(method: str, heads: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program with the patterns of the neighbouring KV heads is wrong in every tensor."""
    right = pattern(heads[1])
    rolled = right.take_heads([(head + 1) % right.heads for head in range(right.heads)])
    plan = plan_of(method, rolled, case_of(SEQLEN, heads), 4)
    wrong = {name for name, error in verdict_of(plan, right).errors.items() if not error.ok}
    assert wrong == {"out", "lse", "dq", "dk", "dv"}
    if method == "ulysses":  # and where a rank takes the patterns of another rank
        monkeypatch.setattr(Plan, "mask_of", lambda self, heads: self.mask.take_heads(range((heads[1] - heads[0]) // self.case.group or 1)))
        assert not verdict_of(plan_of(method, right, case_of(SEQLEN, heads), 4)).ok


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("heads", "ranks"), [((8, 4), 4), ((8, 2), 8), ((9, 3), 2)])
def test_the_work_of_all_ranks_is_the_works_of_the_mask(method: str, heads: tuple[int, int], ranks: int) -> None:
    plan = plan_of(method, pattern(heads[1]), case_of(SEQLEN, heads), ranks)
    programs = [plan.program(TraceComm(rank, ranks)) for rank in range(ranks)]
    assert sum(plan.pairs(program.rows, program.heads) for program in programs) == metrics.pairs(plan.mask, plan.case)


@given(st.integers(1, 40), st.integers(1, 16), st.integers(0, 15), st.integers(1, 9))
def test_zigzag_deals_out_whole_blocks_evenly(blocks: int, size: int, short: int, ranks: int) -> None:
    mask = masks.uniform_block(blocks * size - min(short, size - 1), b=size)
    owned = sharding.zigzag(mask, ranks)
    dealt = []
    for shard in owned:
        assert np.isin(shard, mask.row_edges).all()
        cut = mask.rows(shard)  # type: ignore[arg-type]  # arrays are ranges too
        dealt.append(len(cut.row_edges) - 1)
        assert not dealt[-1] or block_size(cut) == mask.row_edges[1]
    assert sum(map(ranges.count, owned)) == mask.seqlen_q
    assert sorted(token for shard in owned for token in ranges.tokens(shard).tolist()) == list(range(mask.seqlen_q))
    assert max(dealt) - min(dealt) <= 1


@pytest.mark.parametrize(("ranks", "heads"), [(2, (8, 4)), (4, (8, 2)), (8, (8, 2))])
def test_as_much_is_sent_as_without_a_pattern(ranks: int, heads: tuple[int, int]) -> None:
    seqlen, size = 480, 8
    plans = [plan_of(method, pattern(heads[1], seqlen, 30), case_of(seqlen, heads), ranks) for method in ("ulysses", "ring_allgather")]
    split = (ranks - 1) * seqlen * size * (2 * heads[0] + 2 * max(heads[1], ranks)) // ranks**2
    keys = (ranks - 1) * seqlen * 2 * heads[1] * size // ranks
    assert [sent_both_ways(plan, 4) for plan in plans] == [[(split, split)] * ranks, [(keys, 2 * keys)] * ranks]


def wanted(plan: Plan, ranks: Sequence[int]) -> int:
    """The keys, of one head each, in the blocks that rows of these ranks keep in that head and that other ranks have; block by block."""
    mask, size, own = plan.mask, np.diff(plan.mask.row_edges), np.concatenate([ranges.tokens(plan.rows(rank)) for rank in ranks])
    mine = np.isin(mask.row_edges[:-1], own)
    assert (np.repeat(mine, size) == np.isin(np.arange(mask.seqlen_q), own)).all()  # whole row blocks
    heads = plan.case.heads_kv // mask.heads
    keys = np.array([np.isin(np.arange(*edges), own, invert=True).sum() for edges in pairwise(mask.col_edges)])
    return heads * sum(int(keys[kept[mine].any(0)].sum()) for kept in mask.kept)


def moved(plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Keys, of one head each, from rank to rank: forward and backward."""
    found = np.zeros((2, plan.ranks, plan.ranks), np.int64)
    for rank in range(plan.ranks):
        program = record(plan, rank)
        for turn, events in enumerate((program.forward, program.backward)):
            for to, size in (message for event in events for message in event.sends):
                found[turn, rank, to] += size
    return tuple(found // (4 * (plan.case.head_dim + plan.case.head_dim_v)))


PATTERNS: dict[str, Callable[[int], BlockMask]] = {
    "random": lambda heads: pattern(heads),
    "one for all heads": lambda heads: pattern(1),
    "msa": lambda heads: selected_pattern("msa", (2 * heads, heads)),
    "variable": lambda heads: masks.variable_block(SEQLEN, seed=2, avg=20, least=7, ratio=0.2, heads=heads),
    "few": lambda heads: masks.uniform_block(SEQLEN, seed=3, b=8, ratio=0.06, heads=heads),
}


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("name", PATTERNS)
def test_block_cast_sends_what_rows_selected_and_nothing_else(name: str, ranks: int) -> None:
    """A key of a head, and its gradient, moves between a rank that selected it and its owner."""
    plan = plan_of("block_cast", PATTERNS[name](4), case_of(SEQLEN, (8, 4)), ranks)
    forward, backward = moved(plan)
    assert forward.sum(0).tolist() == [wanted(plan, [rank]) for rank in range(ranks)]
    assert np.array_equal(backward, forward + forward.T)
    assert name != "few" or forward.sum() < (ranks - 1) * SEQLEN * 4


@pytest.mark.parametrize(("ranks", "node"), [(4, 2), (8, 4), (7, 3)])
@pytest.mark.parametrize("name", PATTERNS)
def test_block_cast_between_nodes_sends_each_key_once(name: str, ranks: int, node: int) -> None:
    plan = plan_of("block_cast", PATTERNS[name](4), case_of(SEQLEN, (8, 4)), ranks, options={"node": node})
    assert_right(plan)
    nodes = [range(first, min(first + node, ranks)) for first in range(0, ranks, node)]
    outside = [moved(plan)[0][np.setdiff1d(np.arange(ranks), of_node)][:, of_node].sum() for of_node in nodes]
    assert outside == [wanted(plan, of_node) for of_node in nodes]


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.integers(0, 99))
def test_balanced_blocks_are_as_many_and_as_much_work_for_all(blocks: int, ranks: int, heads: int, seed: int) -> None:
    """The heaviest rank has no more than the mean and one row block of the heaviest."""
    rng = np.random.default_rng(seed)
    edges = np.append(0, np.cumsum(rng.integers(1, 9, blocks)))
    mask = BlockMask(edges, edges, rng.random((heads, blocks, blocks)) < rng.random((blocks, 1)))
    owned = block_balance.balanced_blocks(mask, ranks)
    assert sorted(token for shard in owned for token in ranges.tokens(shard).tolist()) == list(range(mask.seqlen_q))
    cuts = [mask.rows(shard) for shard in owned]  # type: ignore[arg-type]  # arrays are ranges too
    number = [len(cut.row_edges) - 1 for cut in cuts]
    assert max(number) - min(number) <= 1
    heaviest = max(cut.area for cut in cuts)
    assert heaviest <= mask.area / ranks + mask.row_areas.max() + 0.03 * mask.area / ranks


def test_the_busiest_rank_moves_fewer_keys_than_with_contiguous_rows() -> None:
    """Under a causal pattern the last rows see the most, and the first keys are seen by the most."""
    mask = block_selection.from_seed("uniform_block", 1024, "msa", 5, block_selection.Heads(8, 4, 8), b=16, top=4)
    case, rows = case_of(1024, (8, 4)), sharding.contiguous(1024, 4)
    chosen, plain = (moved(plan_of("block_cast", mask, case, 4, shards=shards))[0] for shards in (None, rows))
    assert max(chosen.sum(0).max(), chosen.sum(1).max()) < max(plain.sum(0).max(), plain.sum(1).max())


def test_block_cast_refuses_other_masks() -> None:
    with pytest.raises(Refused, match=r"block_cast cannot do this: it takes block patterns alone; use magi for other masks\."):
        plan_of("block_cast", masks.causal(SEQLEN), case_of(SEQLEN, (8, 4)), 4)


@pytest.mark.parametrize("method", OTHERS)
def test_the_other_methods_refuse_them_with_the_reason(method: str) -> None:
    with pytest.raises(Refused) as refused:
        plan_of(method, pattern(4), case_of(SEQLEN, (8, 4)), 4)
    reason = registry.get(method).no_blocks
    assert str(refused.value) == f"{method} cannot do this: {reason}; use ulysses, ring_allgather or block_cast."
    with pytest.raises(Refused, match=f"{reason}; use ring_allgather or block_cast"):
        plan_of(method, pattern(4), case_of(SEQLEN, (8, 4)), 16)


@pytest.mark.parametrize("method", METHODS)
def test_the_patterns_must_fit_the_heads(method: str) -> None:
    with pytest.raises(Refused, match=r"the mask has 3 block patterns for 4 KV heads; give 1 or 4\."):
        plan_of(method, pattern(3), case_of(SEQLEN, (8, 4)), 2)
