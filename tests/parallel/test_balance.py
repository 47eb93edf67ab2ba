"""magi's shards: every token once, tokens and work even, as few bytes as a ring at most."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.masks import Mask
from longca.parallel import sharding
from longca.parallel.balance import balanced, least_imbalance, row_work
from longca.parallel.ranges import Shards, common, count, seen_keys
from longca.parallel.transfers import Needs
from parallel.running import mask_of

MOST = 1.05  # the heaviest rank's work over the mean
DOCUMENTS = st.lists(st.integers(1, 60), min_size=1, max_size=12)
PER_RANK = 8192


def work_of(mask: Mask, shards: Shards) -> list[int]:
    return [int(area) for area in mask.pair_areas(shards, [[(0, mask.seqlen_k)]])[:, 0]]  # type: ignore[arg-type]


def imbalance(mask: Mask, shards: Shards) -> float:
    work = work_of(mask, shards)
    return max(work) * len(work) / sum(work)


def keys_received(mask: Mask, shards: Shards) -> list[int]:
    """Counted rank by rank, without the plan of transfers."""
    seen = [seen_keys(mask, shard) for shard in shards]
    return [count(keys) - count(common(keys, shard)) for keys, shard in zip(seen, shards, strict=True)]


def assert_balanced(mask: Mask, ranks: int) -> None:
    shards, bound = balanced(mask, ranks), least_imbalance(row_work(mask), ranks)
    assert sum(map(count, shards)) == mask.seqlen_q
    edges = np.concatenate(shards)
    edges = edges[np.argsort(edges[:, 0])]
    assert (edges[1:, 0] >= edges[:-1, 1]).all()  # every token once
    assert {count(shard) for shard in shards} <= {mask.seqlen_q // ranks, -(-mask.seqlen_q // ranks)}
    assert imbalance(mask, shards) <= max(MOST, bound + 0.01), f"the bound is {bound:.3f}"
    gathered = (ranks - 1) * mask.seqlen_q
    assert sum(keys_received(mask, shards)) <= gathered
    sent = Needs(mask, shards).sizes
    np.fill_diagonal(sent, 0)
    assert sent.sum(0).max() <= (ranks - 1) * max(map(count, sharding.zigzag(mask, ranks)))  # ring_allgather's busiest rank


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize(("ranks", "seed"), [(8, 0), (8, 3), (12, 1), (64, 2)])
def test_tokens_and_work_are_even_on_every_mask(name: str, ranks: int, seed: int) -> None:
    assert_balanced(masks.build(name, PER_RANK * ranks, seed=seed), ranks)


@pytest.mark.slow
@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize("ranks", [8, 12, 16, 24, 32, 48, 64])
def test_the_whole_grid_is_even(name: str, ranks: int) -> None:
    for seed in range(5):
        per_rank = (PER_RANK, 12345, 4 * PER_RANK)[seed % 3]
        assert_balanced(masks.build(name, per_rank * ranks, seed=seed), ranks)


@given(DOCUMENTS, st.integers(1, 9), st.sampled_from(["causal_document", "full_document", "share_question", "causal_blockwise"]))
def test_shares_of_short_sequences_cover_them(documents: list[int], ranks: int, name: str) -> None:
    mask = masks.build(name, sum(documents), documents=documents)
    shards = balanced(mask, ranks)
    assert sorted(token for shard in shards for pair in shard for token in range(*pair)) == list(range(mask.seqlen_q))
    counts = [count(shard) for shard in shards]
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", masks.names())
def test_row_work_is_the_sum_of_visible_pairs(name: str) -> None:
    mask = mask_of(name, 211)
    assert np.diff(row_work(mask)).tolist() == mask.dense().sum(1).tolist()


@given(st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(2, 3))
def test_no_assignment_of_equally_many_rows_is_below_the_bound(work: list[int], ranks: int) -> None:
    bound = least_imbalance(np.append(0, np.cumsum(work)), ranks)
    best = min(
        max(sum(row for row, owner in zip(work, owners, strict=True) if owner == rank) for rank in range(ranks))
        for owners in itertools.product(range(ranks), repeat=len(work))
        if all(owners.count(rank) >= len(work) // ranks for rank in range(ranks))
    )
    assert bound <= best * ranks / sum(work) + 1e-9


def test_the_bound_shows_what_a_mask_makes_impossible() -> None:
    """Nine heavy rows on eight ranks: somebody has two of them, and an eighth of the others, which are as much work as one of them."""
    documents = [1] * 8183 + [9]
    mask = masks.causal_blockwise(8192, documents=documents)
    bound = least_imbalance(row_work(mask), 8)
    assert abs(bound - 2.125 * 8 / 10) < 0.001
    assert bound <= imbalance(mask, balanced(mask, 8)) < 1.001 * bound


def test_windows_are_cut_into_neighbours() -> None:
    mask = masks.sliding_window_causal(8 * 8192, w=1024)
    assert keys_received(mask, balanced(mask, 8)) == [0] + [1024] * 7


def test_more_imbalance_saves_transfers() -> None:
    mask = masks.build("causal_document", 16 * 8192, seed=0)
    even, uneven = (balanced(mask, 16, slack) for slack in (0.01, 1.0))
    assert imbalance(mask, even) < 1.02
    assert sum(keys_received(mask, uneven)) < sum(keys_received(mask, even)) / 2
