"""The programs of ranks, recorded on shapes: what each rank sends, computes and holds, known without a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import torch
from msgspec.structs import replace

from longca.kernels import registry as kernels
from longca.kernels.inputs import DTYPES
from longca.parallel.comm.base import AttentionCall
from longca.parallel.comm.trace import Event, TraceComm
from longca.parallel.grid import Grid
from longca.parallel.head_split import HeadSplit
from longca.parallel.method import Plan
from longca.parallel.ranges import count

MOST_CALLS = 128  # of a plan, that its kernel is asked about: with documents, the answer to one takes milliseconds


@dataclass(frozen=True)
class RankProgram:
    """What one rank does. Peaks are in bytes and include q, k, v and, in a backward, dout and what the forward saved."""

    rank: int
    forward: list[Event]
    backward: list[Event]
    forward_peak: int
    peak: int
    sent_bytes: int
    messages: int


def record(plan: Plan, rank: int) -> RankProgram:
    """Runs forward and, where the case has one, backward of one rank on shapes. Inputs are born in the kernel's memory order."""
    comm = TraceComm(rank, plan.ranks, own_collectives=plan.case.device == "cuda")
    program = plan.program(comm)
    case, length, layout = plan.case, count(plan.rows(rank)), kernels.choices(plan.kernel)[0].layout

    def born(heads: int, size: int) -> torch.Tensor:
        if layout == "LHD":
            return comm.empty((length, heads, size), DTYPES[case.dtype], "input")
        return comm.empty((heads, length, size), DTYPES[case.dtype], "input").transpose(0, 1)

    q, k, v = born(case.heads_q, case.head_dim), born(case.heads_kv, case.head_dim), born(case.heads_kv, case.head_dim_v)
    _, saved = program.forward(q, k, v)
    turn, forward_peak = len(comm.events), comm.recording.peak
    if case.backward:
        program.backward(born(case.heads_q, case.head_dim_v), saved)
    events = comm.events
    return RankProgram(
        rank, events[:turn], events[turn:], forward_peak, comm.recording.peak, comm.traffic.sent_bytes, comm.traffic.messages
    )


def twin_of(plan: Plan, rank: int) -> int:
    """The first rank whose program is this rank's with two columns of the grid exchanged (`mirrored`); often the rank itself."""
    if not plan.method.columns_alike or plan.mask.heads > 1:
        return rank
    grid = plan.grid
    split, group, place = HeadSplit.of(plan.case, grid.heads), grid.head_group(rank), grid.head_position(rank)

    def share(column: int) -> tuple[int, int, int, bool]:
        """Tokens, query heads, KV heads, and whether the column before has the same KV head: parts of such heads are added up."""
        (q0, q1), (k0, k1) = split.queries[column], split.keys[column]
        return count(plan.rows(group[column])), q1 - q0, k1 - k0, column > 0 and split.keys[column - 1] == (k0, k1)

    return next(other for column, other in enumerate(group) if share(column) == share(place))


def mirrored(program: RankProgram, grid: Grid, rank: int) -> RankProgram:
    """The program of another rank of the same head group: the two ranks' columns of the grid are exchanged."""
    if rank == program.rank:
        return program
    shift = rank - program.rank
    here, there = grid.head_position(program.rank), grid.head_position(rank)
    ranks = {
        number: number + (shift if column == here else -shift)
        for column in (here, there)
        for number in range(column, grid.ranks, grid.heads)
    }
    groups: dict[tuple[int, ...], tuple[int, ...]] = {}

    def moved(event: Event) -> Event:
        if event.kind != "post":
            return event
        if event.members not in groups:
            groups[event.members] = tuple(sorted(ranks.get(member, member) for member in event.members))
        sends, receives = (tuple((ranks.get(peer, peer), size) for peer, size in side) for side in (event.sends, event.receives))
        return replace(event, members=groups[event.members], sends=sends, receives=receives)

    forward, backward = ([moved(event) for event in events] for events in (program.forward, program.backward))
    return RankProgram(rank, forward, backward, program.forward_peak, program.peak, program.sent_bytes, program.messages)


def distinct_calls(programs: Iterable[RankProgram]) -> list[AttentionCall]:
    """Returns attention calls of each kind, at most `MOST_CALLS`: of calls with the same numbers the first and the last one, as one may be
    the mirror image of the other."""
    events = (event for program in programs for event in program.forward + program.backward)
    calls = [event.call for event in events if event.call is not None and event.call.make_mask is not None]
    last = {_numbers(call): call for call in calls}
    first = {_numbers(call): call for call in reversed(calls)}
    kinds = list({id(call.make_mask): call for numbers in last for call in (first[numbers], last[numbers])}.values())
    return kinds if len(kinds) <= MOST_CALLS else Random(0).sample(kinds, MOST_CALLS)


def _numbers(call: AttentionCall) -> tuple[int, ...]:
    """What tells calls apart, as far as it can be told without their masks."""
    return call.area, call.rows, call.keys, call.tiles, call.heads_q, call.heads_kv
