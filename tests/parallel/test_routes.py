"""Relays: keys cross between two nodes once, every rank gets what its rows see, and gradients come back in fp32 sums."""

from __future__ import annotations

import numpy as np
import pytest

from longca import masks
from longca.masks import Mask
from longca.parallel.comm.null import NullComm
from longca.parallel.method import Plan
from longca.parallel.primitives.group_cast import GroupCast
from longca.parallel.ranges import count, joined, seen_keys, tokens
from longca.parallel.recording import record
from parallel.running import assert_right, case_of, mask_of, plan_of, reference, run_local

NODES = [(4, 2), (5, 2), (7, 3), (6, 5)]  # ranks, and ranks that share a node; the last node may have fewer


def relayed(mask: Mask, ranks: int, node: int, heads: tuple[int, int] = (4, 2), stages: int = 2, dtype: str = "fp32") -> Plan:
    return plan_of("magi", mask, case_of(mask.seqlen_q, heads, dtype), ranks, options={"node": node, "stages": stages})


def crossing(plan: Plan, node: int, forward: bool = True) -> np.ndarray:
    """Bytes that each rank sends to each node."""
    sent = np.zeros((plan.ranks, -(-plan.ranks // node)), np.int64)
    for rank in range(plan.ranks):
        program = record(plan, rank)
        for event in program.forward if forward else program.backward:
            for peer, size in event.sends:
                sent[rank, peer // node] += size
    return sent


@pytest.mark.parametrize(
    ("name", "ranks", "node"),
    [  # in `make test` each mask on two kinds of nodes
        pytest.param(name, *nodes, marks=[pytest.mark.slow] * ((m + n) % 2))
        for m, name in enumerate(masks.names())
        for n, nodes in enumerate(NODES)
    ],
)
def test_right_on_every_mask_and_on_nodes_of_any_size(name: str, ranks: int, node: int) -> None:
    mask = mask_of(name)
    assert_right(run_local(relayed(mask, ranks, node, stages=1 + ranks % 3)), reference(mask, case_of(197)))


def test_right_where_ranks_own_nothing_and_where_nobody_sees_anything() -> None:
    assert_right(run_local(relayed(masks.causal(5), 8, 3)), reference(masks.causal(5), case_of(5)))
    empty = Mask(50, 50, [])
    assert_right(run_local(relayed(empty, 5, 2)), reference(empty, case_of(50)))


@pytest.mark.parametrize("name", masks.names())
def test_every_rank_receives_exactly_the_keys_that_its_rows_see(name: str) -> None:
    mask = mask_of(name, 401)
    plan = relayed(mask, 7, 3)
    for rank in range(7):
        program = plan.program(NullComm(rank, 7))
        assert isinstance(program, GroupCast)
        landed = [keys for stage in program.stages[1:] for keys in stage.hops[-1].landing]
        both = joined(np.concatenate([plan.rows(rank), *landed]))
        assert both.tolist() == joined(np.concatenate([plan.rows(rank), seen_keys(mask, plan.rows(rank))])).tolist()
        assert count(both) == count(plan.rows(rank)) + sum(map(count, landed))  # none twice


@pytest.mark.parametrize(("ranks", "node"), NODES)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["full", "causal", "causal_document", "share_question", "sliding_window"])
def test_a_key_crosses_each_pair_of_nodes_once(name: str, dtype: str, ranks: int, node: int) -> None:
    """Counted from the dense mask. Backward the key comes again, and one fp32 sum goes back."""
    mask = mask_of(name, 401)
    plan, dense = relayed(mask, ranks, node, (2, 1), dtype=dtype), mask.dense()
    own = [np.concatenate([tokens(plan.rows(rank)) for rank in range(first, min(first + node, ranks))]) for first in range(0, ranks, node)]
    seen = np.array([[dense[np.ix_(viewers, keys)].any(0).sum() for viewers in own] for keys in own])  # [node of keys, node of viewers]
    size, away = 2 * 8 * (4 if dtype == "fp32" else 2), ~np.eye(len(own), dtype=bool)

    def by_node(forward: bool) -> np.ndarray:
        return np.add.reduceat(crossing(plan, node, forward), range(0, ranks, node))

    assert (by_node(True)[away] == (seen * size)[away]).all()
    assert (by_node(False)[away] == (seen * size + seen.T * 2 * 8 * 4)[away]).all()


def test_bytes_under_a_full_mask() -> None:
    """As many as without relays, of which a rank sends its own keys to each other node, and 4 bytes of a sum back for each it relays."""
    ranks, node, own = 8, 4, 512 // 8
    plan = plan_of("magi", masks.full(512), case_of(512, (6, 3), "bf16"), ranks, options={"node": node})
    token = 2 * 3 * 8  # elements
    forward, backward = crossing(plan, node), crossing(plan, node, forward=False)
    for rank in range(ranks):
        here, there = rank // node, 1 - rank // node
        assert forward[rank, there] == own * token * 2
        assert forward[rank].sum() == (ranks - 1) * own * token * 2
        assert backward[rank, there] == own * token * (2 + 4)
        assert backward[rank, here] == 2 * forward[rank, here]


def test_adapters_of_a_node_are_equally_busy_where_one_rank_has_what_all_want() -> None:
    """Some ranks have the first tokens, which all others see; the rest of their nodes carry these keys as well."""
    mask = masks.global_sliding_window(4096, g=256, w=8)
    plan = relayed(mask, 8, 4)
    sent = crossing(plan, 4) // (2 * 2 * 8 * 4)
    for first in (0, 4):
        away = sent[first : first + 4, 1 - first // 4]
        assert away.max() - away.min() <= 2
        assert away.sum() > 0


@pytest.mark.parametrize(("ranks", "node"), [(8, 2), (12, 4)])
@pytest.mark.parametrize("name", masks.names())
def test_relays_send_no_more_keys_than_an_all_gather(name: str, ranks: int, node: int) -> None:
    """In bf16, of all ranks together and of the busiest one. Backward, one sum for each key and other node returns in fp32 instead of bf16:
    under a full mask (N/n - 1) of the 2 (N - 1) times that a key or its gradient is sent, and never more."""
    mask = masks.build(name, 256 * ranks, seed=1)
    case = case_of(mask.seqlen_q, (2, 1), "bf16")
    gathered, sent = (
        np.array([crossing(plan, ranks, forward).sum(1) for forward in (True, False)])
        for plan in (plan_of("ring_allgather", mask, case, ranks), relayed(mask, ranks, node, (2, 1), dtype="bf16"))
    )
    surcharge = np.array([0, (ranks // node - 1) / (2 * (ranks - 1))])
    for together in (np.sum, np.max):
        share = together(sent, axis=1) / together(gathered, axis=1)
        assert (share <= 1 + surcharge + 1e-9).all()
        if name == "full":
            assert share == pytest.approx(1 + surcharge)


def test_relays_pass_keys_on_beside_attention() -> None:
    """Every hop but the first: nothing of it stands in the way of the attention calls, and the first is under way before them."""
    plan = relayed(masks.full(256), 8, 4)
    forward = record(plan, 3).forward
    first = next(number for number, event in enumerate(forward) if event.kind == "attention")
    assert sum(event.kind == "post" and not event.beside for event in forward[:first]) >= 2  # of the own node, and to relays
    assert not [event for event in forward[first:] if event.kind == "post" and not event.beside]
    assert {event.channel for event in forward if event.kind == "post" and event.beside} == {"relays"}
