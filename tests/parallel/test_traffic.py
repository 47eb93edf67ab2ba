"""What is sent and held, from recordings of each rank's own program, against the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from longca import masks
from longca.parallel.comm.local import World
from longca.parallel.comm.trace import Event, TraceComm
from longca.parallel.method import Plan
from longca.parallel.ranges import common, count, seen_keys
from parallel.running import case_of, mask_of, plan_of, run_local, step, trace

SEQLEN, SIZE, BYTES = 480, 8, 4
FULL = masks.full(SEQLEN)


def sent(events: list[Event]) -> int:
    return sum(event.bytes for event in events if event.kind == "post")


def both_ways(plan: Plan) -> list[tuple[int, int]]:
    """Elements sent by each rank, forward and backward."""
    found = []
    for rank in range(plan.ranks):
        comm, turn = trace(plan, rank)
        found.append((sent(comm.events[:turn]) // BYTES, sent(comm.events[turn:]) // BYTES))
        assert sent(comm.events) == comm.traffic.sent_bytes
    return found


@pytest.mark.parametrize(("ranks", "heads"), [(2, (8, 4)), (4, (8, 4)), (8, (8, 2)), (3, (6, 3)), (8, (16, 8))])
def test_ulysses(ranks: int, heads: tuple[int, int]) -> None:
    each = (ranks - 1) * SEQLEN * SIZE * (2 * heads[0] + 2 * max(heads[1], ranks)) // ranks**2
    assert both_ways(plan_of("ulysses", FULL, case_of(SEQLEN, heads), ranks)) == [(each, each)] * ranks


@pytest.mark.parametrize("method", ["ring_p2p", "ring_allgather", "magi"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_rings_send_keys_once_forward_and_twice_backward(method: str, ranks: int) -> None:
    """A full mask needs every key everywhere, so magi sends as much as a ring."""
    mask = masks.full(SEQLEN if method != "magi" else 512)
    if method == "magi" and ranks == 3:
        mask = masks.full(48 * 8)
    each = (ranks - 1) * mask.seqlen_q * 2 * 3 * SIZE // ranks
    assert both_ways(plan_of(method, mask, case_of(mask.seqlen_q, (6, 3)), ranks)) == [(each, 2 * each)] * ranks


@pytest.mark.parametrize(
    ("method", "grid", "heads"),
    [
        ("usp", "2x2", (8, 4)),
        ("usp", "4x2", (8, 2)),
        ("usp", "2x3", (4, 2)),
        ("loongtrain", "2x4x2", (8, 4)),
        ("loongtrain", "1x4x2", (4, 2)),
    ],
)
def test_grids(method: str, grid: str, heads: tuple[int, int]) -> None:
    u, r = (int(number) for number in grid.split("x")[:2])
    ranks, keys = u * r, max(heads[1], u)
    split = (u - 1) * SEQLEN * SIZE * (2 * heads[0] + 2 * keys) // (u * ranks)
    ring = (r - 1) * SEQLEN * keys * 2 * SIZE // (r * u)
    assert both_ways(plan_of(method, FULL, case_of(SEQLEN, heads), ranks, grid)) == [(split + ring, split + 2 * ring)] * ranks


def test_few_of_a_double_rings_transfers_are_between_windows() -> None:
    plan = plan_of("loongtrain", FULL, case_of(SEQLEN), 8, "1x8x2")
    comm, turn = trace(plan, 3)
    hops = [peer for event in comm.events[:turn] if event.kind == "post" for peer, _ in event.sends[:1]]
    assert len(hops) == 7
    assert [peer // 4 != 3 // 4 for peer in hops].count(True) == 1


def test_groups_that_exchange_heads_are_neighbours() -> None:
    plan = plan_of("usp", FULL, case_of(SEQLEN), 8, "4x2")
    comm, turn = trace(plan, 5)
    posts = [event for event in comm.events[:turn] if event.kind == "post"]
    assert {event.members for event in posts if event.what == "all_to_all"} == {(4, 5, 6, 7)}
    assert {event.members for event in posts if event.what == "exchange"} == {(1, 5)}


@pytest.mark.parametrize("ranks", [3, 8, 16])
def test_a_ring_holds_two_kv_buffers(ranks: int) -> None:
    comm, turn = trace(plan_of("ring_p2p", FULL, case_of(SEQLEN), ranks), 1)
    assert comm.recording.most_alive("kv") == 2
    assert comm.recording.most_alive("dkv") <= 3  # one that comes, one that goes, and once its own coming home
    assert [event for event in comm.events[turn:] if event.kind == "post" and event.bytes]


def test_a_double_ring_holds_two_more_between_windows() -> None:
    comm, _ = trace(plan_of("loongtrain", FULL, case_of(SEQLEN), 16, "1x16x4"), 1)
    assert comm.recording.most_alive("kv") == 4


def attention_calls(comm: TraceComm) -> list[int]:
    return [event.call.area for event in comm.events if event.call is not None and not event.call.backward]


@pytest.mark.parametrize("method", ["ring_p2p", "ring_allgather", "magi", "usp", "loongtrain"])
@pytest.mark.parametrize("name", masks.names())
def test_the_parts_add_up_to_the_mask(method: str, name: str) -> None:
    """No pair is computed twice and none is left out; no call is made for nothing."""
    mask = mask_of(name)
    plan = plan_of(method, mask, case_of(mask.seqlen_q), 4, "" if method not in ("usp", "loongtrain") else "1x4")
    areas = [attention_calls(trace(plan, rank)[0]) for rank in range(4)]
    assert sum(map(sum, areas)) == mask.area
    assert all(area > 0 for rank in areas for area in rank)


@pytest.mark.parametrize("name", masks.names())
def test_magi_moves_exactly_the_keys_that_rows_see(name: str) -> None:
    mask = mask_of(name, 401)
    plan = plan_of("magi", mask, case_of(401, (2, 1)), 4)
    for rank in range(4):
        comm, turn = trace(plan, rank)
        received = sum(size for event in comm.events[:turn] if event.kind == "post" for _, size in event.receives)
        seen = mask.dense()[np.concatenate([np.arange(*pair) for pair in plan.rows(rank)])].any(0)
        seen[np.concatenate([np.arange(*pair) for pair in plan.rows(rank)])] = False
        assert received == seen.sum() * 2 * SIZE * BYTES
        assert count(seen_keys(mask, plan.rows(rank))) - count(common(seen_keys(mask, plan.rows(rank)), plan.rows(rank))) == seen.sum()


@pytest.mark.parametrize("name", masks.names())
def test_what_magi_returns_is_the_gradients_of_those_keys(name: str) -> None:
    """Backward brings every key again and takes its gradient home: twice the forward, rank by rank and in all."""
    there = both_ways(plan_of("magi", mask_of(name, 401), case_of(401, (2, 1)), 4))
    assert sum(backward for _, backward in there) == 2 * sum(forward for forward, _ in there)


@pytest.mark.parametrize(
    "mask", [masks.sliding_window_causal(SEQLEN, w=3), masks.full_document(SEQLEN, documents=[7, 3, 470]), mask_of("causal")]
)
def test_a_ring_sends_keys_no_further_than_somebody_sees_them(mask: masks.Mask) -> None:
    """Counted from the dense mask: a block goes as far as its last viewer, its gradient from the first viewer to the last and home."""
    ranks = 8
    plan = plan_of("ring_p2p", mask, case_of(mask.seqlen_q), ranks)
    dense, own = mask.dense(), [np.concatenate([np.arange(*pair) for pair in plan.rows(rank)]) for rank in range(ranks)]
    forward = backward = calls = 0
    for owner in range(ranks):
        sees = [bool(dense[np.ix_(own[(owner + step) % ranks], own[owner])].any()) for step in range(ranks)]
        others = [step for step in range(1, ranks) if sees[step]]
        block = len(own[owner]) * 2 * 2 * SIZE
        forward += block * max(others, default=0)
        backward += block * (max(others, default=0) + (others[-1] - others[0] + 1 if others else 0))
        calls += sum(sees)
    sent_by_all = both_ways(plan)
    assert (sum(f for f, _ in sent_by_all), sum(b for _, b in sent_by_all)) == (forward, backward)
    assert sum(len(attention_calls(trace(plan, rank)[0])) for rank in range(ranks)) == calls


def test_a_narrow_window_needs_a_small_part_of_a_full_rings_transfers() -> None:
    narrow, full = (plan_of("ring_p2p", mask, case_of(SEQLEN), 8) for mask in (masks.sliding_window_causal(SEQLEN, w=3), FULL))
    assert len(attention_calls(trace(narrow, 3)[0])) < len(attention_calls(trace(full, 3)[0])) == 8


def test_recorded_bytes_are_those_that_ranks_really_send() -> None:
    for method in ("ulysses", "ring_p2p", "ring_allgather", "usp", "loongtrain", "magi"):
        plan = plan_of(method, mask_of("share_question"), case_of(197), 4)
        world = World(4)
        comms = world.comms()
        programs = [plan.program(comm) for comm in comms]
        world.run(lambda rank, programs=programs, plan=plan: step(programs[rank], plan, rank, "HLD"))
        assert [comm.traffic.sent_bytes for comm in comms] == [trace(plan, rank)[0].traffic.sent_bytes for rank in range(4)]


def test_running_changes_nothing_of_the_plan() -> None:
    plan = plan_of("magi", mask_of("causal"), case_of(197), 2)
    first, second = run_local(plan), run_local(plan)
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
