"""What is sent and held, from recordings of each rank's own program, against the formulas."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from longca import masks
from longca.errors import Refused
from longca.parallel import registry
from longca.parallel.comm.local import World
from longca.parallel.comm.trace import Event, TraceComm
from longca.parallel.grid import divisors
from longca.parallel.method import Plan
from longca.parallel.ranges import common, count, seen_keys, tokens
from longca.parallel.recording import record
from longca.parallel.sharding import zigzag
from parallel.running import STATIC, case_of, mask_of, plan_if_taken, plan_of, sent_both_ways, step, trace

SEQLEN, SIZE, BYTES = 480, 8, 4
FULL = masks.full(SEQLEN)


def received_from(events: list[Event]) -> Counter[int]:
    """Bytes by sender."""
    received: Counter[int] = Counter()
    for event in events:
        for peer, size in event.receives:
            received[peer] += size
    return received


def both_ways(plan: Plan) -> list[tuple[int, int]]:
    """Elements sent by each rank, forward and backward."""
    return sent_both_ways(plan, BYTES)


@pytest.mark.parametrize("method", ["ring_p2p", "ring_allgather", "magi"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8])
def test_rings_send_keys_once_forward_and_twice_backward(method: str, ranks: int) -> None:
    """A full mask needs every key everywhere, so magi sends as much as a ring."""
    mask = masks.full(48 * 8 if ranks == 3 else 512)
    each = (ranks - 1) * mask.seqlen_q * 2 * 3 * SIZE // ranks
    assert both_ways(plan_of(method, mask, case_of(mask.seqlen_q, (6, 3)), ranks)) == [(each, 2 * each)] * ranks


@pytest.mark.parametrize(
    ("method", "grid", "heads"),
    [
        *(("ulysses", f"{ranks}x1", heads) for ranks, heads in ((2, (8, 4)), (4, (8, 4)), (8, (8, 2)), (3, (6, 3)), (8, (16, 8)))),
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


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(("grid", "heads"), [("1x4x2", (6, 6)), ("1x4", (6, 3)), ("1x8x2", (4, 2)), ("1x6x3", (8, 8)), ("1x3", (5, 5))])
def test_burst_moves_keys_or_queries_backward(grid: str, heads: tuple[int, int], dtype: str) -> None:
    """In bf16 a token has 12 Hkv D bytes of keys and their sums, or 8 Hq D + 8 Hq of queries; D is that of D and Dv together, halved."""
    ranks, (q, kv) = int(grid.split("x")[1]), heads
    size = {"bf16": 2, "fp32": 4}[dtype]
    forward, keys = 2 * size * kv * SIZE, (2 * size + 8) * kv * SIZE
    queries = (2 * size + 4) * q * SIZE + 8 * q
    moved = (ranks - 1) * SEQLEN // ranks
    plan = plan_of("burst", FULL, case_of(SEQLEN, heads, dtype), ranks, grid)
    assert sent_both_ways(plan) == [(moved * forward, moved * min(keys, queries))] * ranks
    assert trace(plan, 1).recording.most_alive("dq" if queries < keys else "dkv") <= 3


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(
    ("grid", "heads"), [("2x2", (8, 4)), ("4x2", (4, 4)), ("2x4", (8, 2)), ("3x2", (6, 3)), ("4x1", (4, 2)), ("1x4", (4, 2))]
)
def test_mesh(grid: str, heads: tuple[int, int], dtype: str) -> None:
    """Elements of D: (a-1) 2 Hq + (b-1) 2 Hkv forward, (a-1) 3 Hq + (b-1) 4 Hkv backward; beside them lse, and lse and delta."""
    a, b = (int(number) for number in grid.split("x"))
    q, kv = heads
    size, moved = {"bf16": 2, "fp32": 4}[dtype], SEQLEN // (a * b) * SIZE
    part = 4 if b > 1 else size  # out and dq are fp32 where they are sums over a ring, like dk and dv
    forward = (a - 1) * (q * (size + part) * moved + q * 4 * moved // SIZE) + (b - 1) * 2 * kv * size * moved
    backward = (a - 1) * (q * (2 * size + part) * moved + 2 * q * 4 * moved // SIZE) + (b - 1) * 2 * kv * (size + 4) * moved
    plan = plan_of("mesh", FULL, case_of(SEQLEN, heads, dtype), a * b, grid)
    assert sent_both_ways(plan) == [(forward, backward)] * (a * b)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("dtype", ["bf16", "fp32", "fp64"])
@pytest.mark.parametrize(("seqlen", "ranks", "node"), [(480, 8, 4), (480, 8, 3), (480, 8, 8), (480, 8, 1), (480, 6, 2), (484, 8, 4)])
def test_sums_of_gathered_tokens_cross_nodes_in_fp32(seqlen: int, ranks: int, node: int, dtype: str, device: str) -> None:
    """Sums of dk and dv with ring_allgather, of dq with mesh; not where ranks have different numbers of tokens, as 484 on 8, and not
    with gloo, whose parts travel in pairs."""
    size = {"bf16": 2, "fp32": 4, "fp64": 8}[dtype]
    summed = max(size, 4) if device == "cuda" and 1 < node < ranks and seqlen % (2 * ranks) == 0 else size
    others = {rank: seqlen - count(shard) for rank, shard in enumerate(zigzag(masks.full(seqlen), ranks))}
    for method, grid, heads in (("ring_allgather", "", 2 * 3), ("mesh", f"{ranks}x1", 6)):
        plan = plan_of(method, masks.full(seqlen), case_of(seqlen, (6, 3), dtype, device=device), ranks, grid, options={"node": node})
        for rank in range(ranks):
            (event,) = (event for event in record(plan, rank).backward if event.what == "reduce_scatter")
            assert event.bytes == others[rank] * heads * SIZE * summed


def test_sums_that_the_backend_makes_need_no_buffers_for_parts() -> None:
    """As NCCL makes them; bf16 still travels in pairs, to be added by its owner."""
    for dtype, buffers in ((torch.float32, 0), (torch.bfloat16, 3)):
        pairs, own = TraceComm(1, 4), TraceComm(1, 4, own_collectives=True)
        for comm in (pairs, own):
            parts = [[comm.empty((5, 2, 3), dtype), comm.empty((7,), dtype)] for _ in range(4)]
            totals = [comm.empty((5, 2, 3), torch.float32), comm.empty((7,), torch.float32)]
            comm.reduce_scatter(parts, totals).wait()
        assert (pairs.recording.most_alive("parts"), own.recording.most_alive("parts")) == (6, 2 * buffers)
        assert pairs.traffic == own.traffic
        posts = [[(event.sends, event.receives) for event in comm.events if event.kind == "post"] for comm in (pairs, own)]
        assert posts[0] == posts[1]
        assert any(event.kind == "memory" for event in own.events) == bool(buffers)


def test_meshs_grid_is_the_one_that_sends_least() -> None:
    """Near a = sqrt(N Hkv / Hq); with many more query heads than KV heads it is a ring."""
    cases = [(case_of(SEQLEN, heads), ranks, 1) for ranks, heads in ((4, (4, 4)), (8, (8, 4)), (8, (8, 1)), (12, (4, 2)))]
    cases += [(case_of(SEQLEN, (8, 8), "bf16", device=device), 8, node) for node in (1, 4) for device in ("cpu", "cuda")]
    for case, ranks, node in cases:
        plans = [plan_of("mesh", FULL, case, ranks, f"{a}x{ranks // a}", options={"node": node}) for a in divisors(ranks)]
        sums = {plan.grid: sum(map(sum, sent_both_ways(plan))) for plan in plans}
        assert sums[registry.get("mesh").default_grid(case, ranks, node)] == min(sums.values())
    wide = case_of(SEQLEN, (32, 32), "bf16", head_dim=128)
    assert [str(registry.get("mesh").default_grid(wide, ranks)) for ranks in (1, 4, 16, 64)] == ["1x1", "2x2", "4x4", "8x8"]
    assert str(registry.get("mesh").default_grid(case_of(SEQLEN, (64, 8)), 4)) == "1x4"


@pytest.mark.parametrize("method", registry.names())
@pytest.mark.parametrize("name", ["causal", "share_question", "sliding_window"])
def test_the_work_of_all_ranks_is_the_masks(method: str, name: str) -> None:
    plan = plan_if_taken(method, mask_of(name), case_of(197, (8, 4)), 8)
    if plan is not None:
        assert sum(plan.program(TraceComm(rank, 8)).work(plan) for rank in range(8)) == 8 * plan.mask.area


def test_few_of_a_double_rings_transfers_are_between_windows() -> None:
    plan = plan_of("loongtrain", FULL, case_of(SEQLEN), 8, "1x8x2")
    hops = [peer for event in record(plan, 3).forward if event.kind == "post" for peer, _ in event.sends[:1]]
    assert len(hops) == 7
    assert [peer // 4 != 3 // 4 for peer in hops].count(True) == 1


def test_groups_that_exchange_heads_are_neighbours() -> None:
    plan = plan_of("usp", FULL, case_of(SEQLEN), 8, "4x2")
    posts = [event for event in record(plan, 5).forward if event.kind == "post"]
    assert {event.members for event in posts if event.what == "all_to_all"} == {(4, 5, 6, 7)}
    assert {event.members for event in posts if event.what == "exchange"} == {(1, 5)}


@pytest.mark.parametrize("ranks", [3, 8, 16])
def test_a_ring_holds_two_kv_buffers(ranks: int) -> None:
    recording = trace(plan_of("ring_p2p", FULL, case_of(SEQLEN), ranks), 1).recording
    assert recording.most_alive("kv") == 2
    assert 0 < recording.most_alive("dkv") <= 3  # one that comes, one that goes, and once its own coming home


def attention_calls(events: list[Event]) -> list[int]:
    return [event.call.area for event in events if event.call is not None]


@pytest.mark.parametrize("method", [name for name in registry.names() if name != "ulysses"])
@pytest.mark.parametrize("name", masks.names())
def test_the_parts_add_up_to_the_mask(method: str, name: str) -> None:
    """No pair is computed twice and none is left out; no call is made for nothing."""
    mask = mask_of(name)
    plan = plan_if_taken(method, mask, case_of(mask.seqlen_q), 4, "1x4" if registry.get(method).splits_heads else "")
    if plan is None:
        return
    areas = [attention_calls(record(plan, rank).forward) for rank in range(4)]
    assert sum(map(sum, areas)) == mask.area
    assert all(area > 0 for rank in areas for area in rank)


@pytest.mark.parametrize("method", ["magi", "halo"])
@pytest.mark.parametrize("name", masks.names())
def test_exactly_the_keys_move_that_rows_see(name: str, method: str) -> None:
    """Backward brings every key again and takes its gradient home: twice the forward in all."""
    mask = mask_of(name, 401)
    plan = plan_if_taken(method, mask, case_of(401, (2, 1)), 4)
    if plan is None:
        return
    for rank in range(4):
        own, keys = tokens(plan.rows(rank)), seen_keys(mask, plan.rows(rank))
        seen = mask.dense()[own].any(0)
        seen[own] = False
        assert sum(received_from(record(plan, rank).forward).values()) == seen.sum() * 2 * SIZE * BYTES
        assert count(keys) - count(common(keys, plan.rows(rank))) == seen.sum()
    there = both_ways(plan)
    assert sum(backward for _, backward in there) == 2 * sum(forward for forward, _ in there)


@pytest.mark.parametrize("method", ["magi", "halo"])
@pytest.mark.parametrize("name", masks.names())
def test_without_stages_the_same_keys_come_for_one_call(name: str, method: str) -> None:
    """stages=0: a rank whose rows see a key has one call forward and one backward, over its own keys and those that were received."""
    mask, case = mask_of(name, 401), case_of(401, (2, 1))
    if plan_if_taken(method, mask, case, 4) is None:
        return
    plans = [plan_of(method, mask, case, 4, options={"stages": stages}) for stages in (0, 2)]
    assert both_ways(plans[0]) == both_ways(plans[1])
    for rank in range(4):
        at_once, in_stages = (record(plan, rank) for plan in plans)
        area = int(mask.dense()[tokens(plans[0].rows(rank))].sum())
        assert [attention_calls(at_once.forward), attention_calls(at_once.backward)] == [[area] if area else []] * 2
        assert received_from(at_once.forward) == received_from(in_stages.forward)
        assert received_from(at_once.backward) == received_from(in_stages.backward)


HALOS = {  # tokens received by each of 8 ranks of 60 tokens, from the definition of the mask
    "behind": (masks.sliding_window_causal(SEQLEN, w=10), [0] + [10] * 7),
    "both sides": (masks.sliding_window(SEQLEN, w=10), [10] + [20] * 6 + [10]),
    "several neighbours": (masks.sliding_window_causal(SEQLEN, w=130), [0, 60, 120] + [130] * 5),
    "never across the start of a document": (masks.causal_document(SEQLEN, documents=[60, 90, 330]), [0, 0, 60, 30, 90, 150, 210, 270]),
    "a whole document": (masks.full_document(SEQLEN, documents=[120, 360]), [60, 60] + [300] * 6),
}


@pytest.mark.parametrize("case", HALOS)
def test_a_halo_is_as_long_as_windows_reach(case: str) -> None:
    mask, received = HALOS[case]
    plan = plan_of("halo", mask, case_of(SEQLEN, (4, 2)), 8)
    arrived = [sum(received_from(record(plan, rank).forward).values()) for rank in range(8)]
    assert arrived == [number * 2 * 2 * SIZE * BYTES for number in received]


@pytest.mark.parametrize(("mask", "rank"), [("causal", 3), ("full", 0), ("prefix_lm_causal", 3), ("global_sliding_window", 0)])
def test_a_halo_that_is_the_whole_sequence_is_refused(mask: str, rank: int) -> None:
    with pytest.raises(Refused) as refused:
        plan_of("halo", mask_of(mask), case_of(197), 4)
    words = f"the rows of rank {rank} see the keys of all other ranks under this mask; use magi, ring_p2p or ring_allgather."
    assert str(refused.value) == f"halo cannot do this: {words}"
    plan_of("halo", mask_of(mask), case_of(197), 1)  # there is nothing to receive


@pytest.mark.parametrize(
    "mask", [masks.sliding_window_causal(SEQLEN, w=3), masks.full_document(SEQLEN, documents=[7, 3, 470]), mask_of("causal")]
)
def test_a_ring_sends_keys_no_further_than_somebody_sees_them(mask: masks.Mask) -> None:
    """Counted from the dense mask: a block goes as far as its last viewer, its gradient from the first viewer to the last and home.

    With equal heads burst's backward sends queries, as far as there are keys that they see.
    """
    ranks = 8
    ring, burst = plan_of("ring_p2p", mask, case_of(mask.seqlen_q), ranks), plan_of("burst", mask, case_of(mask.seqlen_q, (2, 2)), 8, "1x8")
    dense, own = mask.dense(), [tokens(ring.rows(rank)) for rank in range(ranks)]
    sees = np.array([[dense[np.ix_(own[r], own[o])].any() for o in range(ranks)] for r in range(ranks)])  # [rank of rows, owner of keys]

    def moves(seen: np.ndarray) -> tuple[int, int]:
        """Tokens times hops of all blocks, and of all gradients; seen[r, o]: the block of o has work at r."""
        blocks = gradients = 0
        for owner in range(ranks):
            others = [step for step in range(1, ranks) if seen[(owner + step) % ranks, owner]]
            blocks += len(own[owner]) * max(others, default=0)
            gradients += len(own[owner]) * (others[-1] - others[0] + 1 if others else 0)
        return blocks, gradients

    (keys, key_gradients), (queries, query_gradients) = moves(sees), moves(sees.T)
    token = 2 * 2 * SIZE
    for plan, backward in (
        (ring, (keys + key_gradients) * token),
        (burst, queries * (token + 2 * 2) + query_gradients * 2 * SIZE),
    ):
        sums = both_ways(plan)
        assert (sum(f for f, _ in sums), sum(b for _, b in sums)) == (keys * token, backward)
        assert sum(len(attention_calls(record(plan, rank).forward)) for rank in range(ranks)) == sees.sum()


def test_recorded_bytes_are_those_that_ranks_really_send() -> None:
    for method in STATIC:
        plan = plan_of(method, mask_of("share_question"), case_of(197), 4)
        world = World(4)
        comms = world.comms()
        programs = [plan.program(comm) for comm in comms]
        world.run(lambda rank, programs=programs, plan=plan: step(programs[rank], plan, rank, "HLD"))
        assert [comm.traffic.sent_bytes for comm in comms] == [record(plan, rank).sent_bytes for rank in range(4)]


def test_recordings_keep_the_operations() -> None:
    """A collective is one post, whatever the backend makes of it."""
    for method, grid, forward, backward in (
        ("ring_allgather", "", ["all_gather"], ["all_gather", "reduce_scatter"]),
        ("mesh", "4x1", ["all_gather", "all_to_all"], ["all_gather", "reduce_scatter"]),
    ):
        program = record(plan_of(method, FULL, case_of(SEQLEN), 4, grid), 1)
        posts = [[event.what for event in part if event.kind == "post"] for part in (program.forward, program.backward)]
        assert posts == [forward, backward]
