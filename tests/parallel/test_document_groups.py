"""Groups of ranks for documents: every document once, rounds of disjoint groups, even work, and what they send."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.masks import Mask
from longca.parallel import ranges
from longca.parallel.document_groups import SLACK, documents_of, groups_of
from parallel.running import case_of, mask_of, plan_of, sent_both_ways

LENGTHS = st.lists(st.integers(1, 200), min_size=1, max_size=30)


@given(LENGTHS, st.integers(1, 12))
def test_every_document_has_one_group_and_groups_of_a_round_are_disjoint(lengths: list[int], ranks: int) -> None:
    mask = masks.causal_document(sum(lengths), documents=lengths)
    groups = groups_of(mask, ranks)
    documents, _ = documents_of(mask)
    assert sorted(number for group in groups for number in group.documents) == list(range(len(documents)))
    for group in groups:
        assert group.size == ranks or group.size & (group.size - 1) == 0
        owned = ranges.joined(np.concatenate(group.shards))
        assert ranges.tokens(owned).tolist() == ranges.tokens(documents[list(group.documents)]).tolist()
    for size in {group.size for group in groups}:
        members = [rank for group in groups if group.size == size for rank in group.ranks]
        assert len(members) == len(set(members))
    assert [group.size for group in groups] == sorted((group.size for group in groups), reverse=True)


@given(LENGTHS, st.integers(1, 12))
def test_short_documents_have_one_rank_alone(lengths: list[int], ranks: int) -> None:
    mask = masks.full_document(sum(lengths), documents=lengths)
    _, work = documents_of(mask)
    for group in groups_of(mask, ranks):
        assert group.size == 1 or min(work[list(group.documents)]) > SLACK * work.sum() / ranks


@given(LENGTHS)
def test_documents_are_found_in_the_pairs_of_any_mask(lengths: list[int]) -> None:
    """Against the dense mask: no pair crosses an edge, and the pairs of each are counted. Neighbours of one token may stay together."""
    mask = masks.causal_document(sum(lengths), documents=lengths)
    documents, work = documents_of(Mask.of(mask.seqlen_q, mask.seqlen_k, mask.bands))
    dense = mask.dense()
    assert documents[0, 0] == 0
    assert documents[-1, 1] == mask.seqlen_q
    for (first, last), pairs in zip(documents, work, strict=True):
        assert dense[first:last, first:last].sum() == dense[first:last].sum() == dense[:, first:last].sum() == pairs
    assert len(documents) >= sum(length > 1 for length in lengths)


@pytest.mark.parametrize("name", ["causal_document", "full_document", "prefix_lm_document", "block_causal_document"])
@pytest.mark.parametrize("ranks", [4, 6, 8, 64])
def test_ranks_have_the_same_work_at_8k_tokens_each(name: str, ranks: int) -> None:
    for seed in range(3):
        mask = masks.build(name, 8192 * ranks, seed=seed)
        plan = plan_of("hybrid_dcp", mask, case_of(mask.seqlen_q), ranks)
        work = mask.pair_areas(plan.shards, [[(0, mask.seqlen_k)]])[:, 0]  # type: ignore[arg-type]  # arrays are ranges too
        assert work.max() <= 1.06 * work.mean()


@pytest.mark.parametrize(
    ("lengths", "ranks"),
    [
        ([7071, 5976, 3780], 7),  # 3.5, 2.5 and 1 shares: groups of 4 and 2 leave one rank without work
        ([3000, 3000, 3000], 4),  # three equal documents on four ranks
        ([4000, 3900, 3800, 3700, 3600], 48),
    ],
)
def test_ranks_end_together_where_groups_of_powers_of_two_would_not(lengths: list[int], ranks: int) -> None:
    """Work counted from the lengths: a row of a full document sees as many keys as the document has."""
    mask = masks.full_document(sum(lengths), documents=lengths)
    ends = np.cumsum(lengths)
    work = [0] * ranks
    for group in groups_of(mask, ranks):
        for rank, shard in zip(group.ranks, group.shards, strict=True):
            work[rank] += sum(lengths[int(document)] for document in np.searchsorted(ends, ranges.tokens(shard), side="right"))
    assert sum(work) == sum(length * length for length in lengths)
    assert max(work) <= 1.06 * sum(work) / ranks


@pytest.mark.parametrize("name", ["full", "causal", "share_question", "causal_blockwise", "global_sliding_window", "sliding_window"])
def test_what_does_not_fall_apart_is_one_plain_ring(name: str) -> None:
    ring, hybrid = (plan_of(method, mask_of(name), case_of(197), 6) for method in ("ring_p2p", "hybrid_dcp"))
    assert all((mine == other).all() for mine, other in zip(hybrid.shards, ring.shards, strict=True))
    assert sent_both_ways(hybrid) == sent_both_ways(ring)


def test_each_group_sends_as_a_ring_of_its_tokens() -> None:
    """(g-1)/g of the keys of its documents, twice as much backward; documents of one rank send nothing."""
    lengths = [480, 240, 240, 120, 120, 120, 120, *[24] * 20]
    mask = masks.full_document(sum(lengths), documents=lengths)
    plan = plan_of("hybrid_dcp", mask, case_of(mask.seqlen_q, (4, 2)), 8)
    groups = groups_of(mask, 8)
    assert len({group.size for group in groups}) >= 3
    received = [
        sum(sum(map(ranges.count, group.shards)) * (group.size - 1) // group.size for group in groups if rank in group.ranks)
        for rank in range(8)
    ]
    assert sent_both_ways(plan, 2 * 2 * 8 * 4) == [(tokens, 2 * tokens) for tokens in received]
