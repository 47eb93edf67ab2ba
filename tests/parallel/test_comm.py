"""The kinds of Comm: what arrives, in which order, and what happens when it cannot."""

from __future__ import annotations

import pytest
import torch

from longca.parallel.comm.base import Comm
from longca.parallel.comm.local import LocalComm, Stuck, World
from longca.parallel.comm.null import NullComm
from longca.parallel.comm.trace import TraceComm
from longca.parallel.recording import record
from parallel.jobs import collectives
from parallel.running import STATIC, case_of, mask_of, own_tokens, plan_of, step, trace


def expected_collectives(rank: int, size: int) -> list[list[float]]:
    gathered = [float(r) for r in range(size) for _ in range(r + 1)]
    swapped = [10.0 * r + rank for r in range(size) for _ in range(rank + 1)]
    return [gathered, swapped, [float(rank * size)] * (rank + 1)]


def test_uneven_collectives() -> None:
    world = World(4)
    comms = world.comms()
    assert world.run(lambda rank: collectives(comms[rank])) == [expected_collectives(rank, 4) for rank in range(4)]


def test_messages_of_a_channel_arrive_in_order_and_do_not_wait_for_other_channels() -> None:
    world = World(2)
    comms = world.comms()

    def program(rank: int) -> list[float]:
        other = comms[rank].sub([0, 1], "gradients")
        buffers = [torch.empty(1) for _ in range(3)]
        if rank == 0:
            posts = [comms[0].exchange([(1, torch.tensor([value]))], []) for value in (1.0, 2.0)]
            posts.append(other.exchange([(1, torch.tensor([3.0]))], []))
        else:
            posts = [other.exchange([], [(0, buffers[2])])]
            posts += [comms[1].exchange([], [(0, buffer)]) for buffer in buffers[:2]]
        for post in posts:
            post.wait()
        return [float(x) for x in buffers]

    assert world.run(program)[1] == [1.0, 2.0, 3.0]


def test_ranks_that_wait_for_each_other_are_told_so() -> None:
    world = World(3)
    comms = world.comms()
    with pytest.raises(Stuck, match=r"all ranks wait.*rank 0 receives from rank 1"):
        world.run(lambda rank: comms[rank].exchange([], [((rank + 1) % 3, torch.empty(1))]).wait())


def test_a_rank_that_fails_stops_the_others() -> None:
    world = World(3)
    comms = world.comms()

    def program(rank: int) -> None:
        if rank == 1:
            raise ZeroDivisionError("rank 1")
        comms[rank].barrier()

    with pytest.raises(ZeroDivisionError, match="rank 1"):
        world.run(program)


def test_plans_that_disagree_on_a_shape_are_found_out() -> None:
    world = World(2)
    comms = world.comms()

    def program(rank: int) -> None:
        comms[rank].exchange([(1, torch.empty(3))] if rank == 0 else [], [] if rank == 0 else [(0, torch.empty(4))]).wait()

    with pytest.raises(Stuck, match=r"\[3\].*\[4\]"):
        world.run(program)


@pytest.mark.parametrize("comm", [NullComm(2, 4), TraceComm(2, 4), LocalComm(World(4), range(4), 2)])
def test_sub_groups_number_their_members_anew(comm: Comm) -> None:
    group = comm.sub([0, 2, 3], "relays")
    assert (group.rank, group.size, group.members) == (1, 3, (0, 2, 3))
    assert group.sub([1, 2]).members == (2, 3)
    assert group.traffic is comm.traffic


@pytest.mark.parametrize("method", STATIC)
def test_the_null_comm_runs_the_same_program_alone(method: str) -> None:
    """Shapes are right and bytes are counted, though nothing is sent."""
    plan = plan_of(method, mask_of("sliding_window_causal"), case_of(197), 4)
    comm = NullComm(1, 4)
    out, _, dq, dk, dv = step(plan.program(comm), plan, 1, "HLD")
    assert (out.shape, dk.shape) == (dq.shape, dv.shape)
    assert comm.traffic.sent_bytes == record(plan, 1).sent_bytes > 0


def test_a_recording_pairs_waits_with_posts_and_frees_everything() -> None:
    plan = plan_of("ring_p2p", mask_of("causal"), case_of(197), 4)
    comm, length = trace(plan, 0), len(own_tokens(plan, 0))
    numbers = {kind: [event.number for event in comm.events if event.kind == kind] for kind in ("post", "wait")}
    assert sorted(numbers["post"]) == sorted(numbers["wait"])
    assert comm.recording.alive == 0 < comm.recording.peak_bytes()
    sums = 3 * 2 * length * 2 * 2 * 8 * 4  # of dk and dv: three other ranks' parts are added, each read and written
    assert sum(event.bytes for event in comm.events if event.kind == "memory") >= sums
