"""Shards: every token once, in the promised places, and the work even."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.errors import BadInput, Refused
from longca.kernels.base import Case
from longca.parallel import ranges, sharding
from longca.parallel.balance import balanced
from longca.parallel.grid import Grid
from longca.parallel.head_split import HeadSplit
from parallel.running import case_of, mask_of, plan_of

DOCUMENTS = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def numbers(owned: ranges.Ranges) -> list[int]:
    return [token for first, last in owned for token in range(first, last)]


def assert_cover(owned: ranges.Shards, length: int) -> None:
    assert sorted(token for shard in owned for token in numbers(shard)) == list(range(length))
    for shard in owned:
        assert (shard[:, 1] > shard[:, 0]).all()
        assert (shard[1:, 0] > shard[:-1, 1]).all()


@given(DOCUMENTS, st.integers(1, 9))
def test_zigzag_gives_each_rank_a_chunk_from_the_front_and_one_from_behind(documents: list[int], ranks: int) -> None:
    mask = masks.causal_document(sum(documents), documents=documents)
    owned = sharding.zigzag(mask, ranks)
    assert_cover(owned, mask.seqlen_q)
    counts = [ranges.count(shard) for shard in owned]
    assert max(counts) - min(counts) <= 2
    start = 0
    for length in documents:
        for rank, shard in enumerate(owned):
            own = [token - start for token in numbers(shard) if start <= token < start + length]
            front = [token for token in own if token < (rank + 1) * -(-length // (2 * ranks))]
            assert len(own) - len(front) <= -(-length // (2 * ranks))
        start += length


def test_zigzag_makes_causal_work_even() -> None:
    mask = masks.causal(1024)
    owned = sharding.zigzag(mask, 8)
    work = mask.pair_areas(owned, [[(0, 1024)]]).sum(1)  # type: ignore[arg-type]
    assert work.max() == work.min()


@given(DOCUMENTS, st.integers(1, 5), st.integers(1, 5))
def test_split_each_keeps_the_order_of_tokens(documents: list[int], ring: int, heads: int) -> None:
    whole = sharding.zigzag(masks.causal_document(sum(documents), documents=documents), ring)
    parts = sharding.split_each(whole, heads)
    for position, shard in enumerate(whole):
        joined = [token for part in parts[position * heads : (position + 1) * heads] for token in numbers(part)]
        assert joined == numbers(shard)


RANGE_SETS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=8).map(lambda pairs: [(a, a + n) for a, n in pairs])


@given(RANGE_SETS, RANGE_SETS)
def test_sets_of_ranges_are_sets(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, two = (ranges.joined(ranges.as_array(pairs)) for pairs in (left, right))
    members = [{token for first, last in pairs for token in range(first, last)} for pairs in (left, right)]
    assert numbers(one) == sorted(members[0])
    both = ranges.common(one, two)
    assert numbers(both) == sorted(members[0] & members[1])
    assert [numbers(one)[index] for index in ranges.positions(both, one)] == numbers(both)
    assert numbers(ranges.part(one, 2, 5)) == numbers(one)[2:5]


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 48))
def test_heads_are_split_evenly_and_groups_are_kept(kv: int, group: int, ranks: int) -> None:
    case = Case(1, 1, kv * group, kv, 8, 8)
    if ranks > case.heads_q:
        with pytest.raises(Refused, match="query heads"):
            HeadSplit.of(case, ranks)
        return
    split = HeadSplit.of(case, ranks)
    assert [head for first, last in split.queries for head in range(first, last)] == list(range(case.heads_q))
    assert {head for first, last in split.keys for head in range(first, last)} == set(range(kv))
    for (q0, q1), (k0, k1) in zip(split.queries, split.keys, strict=True):
        assert {head // group for head in range(q0, q1)} == set(range(k0, k1))
    counts = [last - first for first, last in split.keys]
    assert max(counts) - min(counts) <= 1


def test_grids_are_read_and_written() -> None:
    assert str(Grid.parse("2x4x2")) == "2x4x2"
    assert Grid.parse("4x2") == Grid(4, 2, 1)
    assert Grid(4, 2).head_group(5) == [4, 5, 6, 7]
    assert Grid(4, 2).ring_group(5) == [1, 5]
    for text in ("4", "4x", "0x3", "2x4x3", "2 x 4"):
        with pytest.raises(BadInput, match="grid"):
            Grid.parse(text)


@pytest.mark.parametrize(
    ("method", "ranks", "grid", "words"),
    [
        ("ulysses", 8, "", "8 ranks cannot share 4 query heads; use usp with grid 4x2, or ring_p2p"),
        ("ulysses", 4, "2x2", "no ring.*use grid 4x1"),
        ("ring_p2p", 4, "2x2", "does not split heads.*use grid 1x4"),
        ("usp", 6, "2x2", "for 4 ranks, and there are 6; use grid 3x2"),
        ("usp", 8, "2x4x2", "no windows.*loongtrain"),
        ("ring_p2p", 8, "1x8x2", "no windows.*leave the last number out, or use burst"),
        ("burst", 8, "2x4x2", "does not split heads.*use grid 1x8x2"),
        ("usp", 8, "8x1", "8 ranks cannot share 4 query heads; use grid 4x2"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_suggestion(method: str, ranks: int, grid: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        plan_of(method, mask_of("causal"), case_of(197), ranks, grid)


def test_a_million_tokens_are_shared_out_quickly() -> None:
    import time

    documents = np.full(10_000, 100).tolist()
    mask = masks.causal_document(1_000_000, documents=documents)
    start = time.process_time()
    for shards in (sharding.zigzag(mask, 64), balanced(mask, 64)):
        assert sum(map(ranges.count, shards)) == 1_000_000
    assert time.process_time() - start < 20  # it takes a fifth of a second; what looks at every pair of documents, minutes
