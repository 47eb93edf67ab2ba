"""Transfers: exactly the keys that are needed, in rounds in which every rank sends to one and receives from one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longca import masks
from longca.masks.bands import Ints
from longca.parallel import sharding
from longca.parallel.primitives import group_cast
from longca.parallel.ranges import common, seen_keys
from longca.parallel.recording import record
from longca.parallel.transfers import Needs, in_stages, rounds
from parallel.running import assert_right, case_of, mask_of, plan_of, reference, run_local


@st.composite
def size_tables(draw: st.DrawFn) -> Ints:
    ranks = draw(st.integers(1, 9))
    sizes = draw(st.lists(st.integers(0, 6), min_size=ranks * ranks, max_size=ranks * ranks))
    return np.array(sizes, np.int64).reshape(ranks, ranks)


def pairs_of(sizes: Ints) -> set[tuple[int, int]]:
    return {(int(r), int(s)) for r, s in zip(*np.nonzero(sizes), strict=True) if r != s}


@given(size_tables())
def test_rounds_are_matchings_and_as_few_as_the_busiest_rank_needs(sizes: Ints) -> None:
    turns = rounds(sizes)
    done = [pair for turn in turns for pair in turn.items()]
    assert len(done) == len(set(done))
    assert set(done) == pairs_of(sizes)
    for turn in turns:
        assert len(set(turn.values())) == len(turn)  # receivers differ because they are keys
    busiest = [sum(pair[side] == rank for pair in done) for side in range(2) for rank in range(len(sizes))]
    assert len(turns) == max(busiest)


@given(size_tables(), st.integers(1, 5), st.integers(0, 8))
def test_stages_hold_all_rounds_in_order(sizes: Ints, stages: int, small: int) -> None:
    turns = rounds(sizes)
    plan = in_stages(turns, sizes, stages, small)
    assert [turn for stage in plan for post in stage for turn in post] == turns
    assert len(plan) <= stages
    for post in (post for stage in plan for post in stage):
        assert len(post) == 1 or sum(max(int(sizes[pair]) for pair in turn.items()) for turn in post) <= small


@pytest.mark.parametrize("name", masks.names())
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_needs_are_the_seen_keys_by_owner(name: str, ranks: int) -> None:
    mask = mask_of(name, 401)
    shards = sharding.zigzag(mask, ranks)
    needs = Needs(mask, shards)
    for rank, shard in enumerate(shards):
        for owner, owned in enumerate(shards):
            wanted = common(seen_keys(mask, shard), owned)
            assert needs.keys(rank, owner).tolist() == wanted.tolist()
            assert needs.sizes[rank, owner] == (wanted[:, 1] - wanted[:, 0]).sum()


@pytest.mark.parametrize("name", ["causal", "share_question", "full_document", "global_sliding_window"])
@pytest.mark.parametrize("stages", [1, 2, 5])
def test_magi_is_right_in_rounds_that_are_not_joined(name: str, stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_cast, "JOIN_BYTES", 0)
    mask, case = mask_of(name), case_of(197)
    plan = plan_of("magi", mask, case, 5, options={"stages": stages})
    assert_right(run_local(plan), reference(mask, case))


@pytest.mark.parametrize("name", ["full", "causal_blockwise", "causal_document"])
def test_a_rank_sends_to_one_and_receives_from_one_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_cast, "JOIN_BYTES", 0)
    plan = plan_of("magi", mask_of(name, 401), case_of(401), 8)
    for rank in range(8):
        program = record(plan, rank)
        posts = [event for event in program.forward + program.backward if event.kind == "post"]
        assert all(len({peer for peer, _ in ends}) <= 1 for event in posts for ends in (event.sends, event.receives))


@pytest.mark.parametrize(("stages", "calls"), [(1, 2), (2, 3), (4, 5), (100, 8)])
def test_stages_are_attention_calls(stages: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One over the rank's own keys, and one for each stage; no more than there are rounds."""
    monkeypatch.setattr(group_cast, "JOIN_BYTES", 0)
    plan = plan_of("magi", masks.full(64), case_of(64), 8, options={"stages": stages})
    assert sum(event.kind == "attention" for event in record(plan, 0).forward) == calls


def test_the_next_stage_travels_beside_the_attention_over_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_cast, "JOIN_BYTES", 0)
    plan = plan_of("magi", masks.full(64), case_of(64), 8, options={"stages": 7})
    kinds = [event.kind for event in record(plan, 0).forward if event.kind in ("post", "wait", "attention")]
    assert kinds == ["post", "attention", *["wait", "post", "attention"] * 6, "wait", "attention"]
