"""The programs of ranks, recorded on shapes: what each rank sends, computes and holds, known without a device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from longca.kernels import registry as kernels
from longca.kernels.inputs import DTYPES
from longca.parallel.comm.trace import Event, TraceComm
from longca.parallel.method import Plan
from longca.parallel.ranges import count


@dataclass(frozen=True)
class RankProgram:
    """What one rank does. Peaks are in bytes and include q, k, v and, in a backward, dout and what the forward kept."""

    rank: int
    forward: list[Event]
    backward: list[Event]
    forward_peak: int
    peak: int
    sent_bytes: int
    messages: int


def record(plan: Plan, rank: int) -> RankProgram:
    """Runs forward and, where the case has one, backward of one rank on shapes. Inputs are born in the kernel's memory order."""
    comm = TraceComm(rank, plan.ranks)
    program = plan.program(comm)
    case, length, layout = plan.case, count(plan.rows(rank)), kernels.choices(plan.kernel)[0].layout

    def born(heads: int, size: int) -> torch.Tensor:
        if layout == "LHD":
            return comm.empty((length, heads, size), DTYPES[case.dtype], "input")
        return comm.empty((heads, length, size), DTYPES[case.dtype], "input").transpose(0, 1)

    q, k, v = born(case.heads_q, case.head_dim), born(case.heads_kv, case.head_dim), born(case.heads_kv, case.head_dim_v)
    _, kept = program.forward(q, k, v)
    turn, forward_peak = len(comm.events), comm.recording.peak
    if case.backward:
        program.backward(born(case.heads_q, case.head_dim_v), kept)
    events = comm.events
    return RankProgram(
        rank, events[:turn], events[turn:], forward_peak, comm.recording.peak, comm.traffic.sent_bytes, comm.traffic.messages
    )
