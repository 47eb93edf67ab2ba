"""InTurn: several programs one after the other, each on some of this rank's tokens."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from longca.parallel.comm.base import Comm
from longca.parallel.primitives.local import LocalKernel
from longca.parallel.primitives.program import Gradients, Program, Saved, with_sinks
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Ranges, positions


class InTurn(Program):
    """`rows` are this rank's tokens; those of the programs are disjoint and make up all of them."""

    def __init__(self, programs: Sequence[Program], kernel: LocalKernel, comm: Comm, rows: Ranges, heads: tuple[int, int]) -> None:
        self.kernel, self.comm, self.rows, self.heads = kernel, comm, rows, heads
        self.turns = [(program, torch.from_numpy(positions(program.rows, rows)).to(comm.device)) for program in programs]

    def forward(
        self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor, sinks_H: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, Saved]:
        out = self.kernel.empty((*q_LHD.shape[:2], v_LHD.shape[2]), what="out")
        lse_HL = self.comm.empty((q_LHD.shape[1], len(q_LHD)), torch.promote_types(q_LHD.dtype, torch.float32), "lse")
        for program, index in self.turns:
            q, k, v = self.taken(index, q_LHD, k_LHD, v_LHD)
            part, saved = program.forward(q, k, v, sinks_H)
            assert saved.lse is not None  # kernels without it are refused
            self.put(index, out, part)
            lse_HL.index_copy_(1, index, saved.lse)
        return out, Saved(q_LHD, k_LHD, v_LHD, out, lse_HL, self.own_sinks(sinks_H))

    def backward(self, dout_LHD: torch.Tensor, saved: Saved) -> Gradients:
        dq, dk, dv = (self.kernel.empty(x.shape, what="gradient") for x in saved[:3])
        assert saved.lse is not None
        for program, index in self.turns:
            dout, q, k, v, out = self.taken(index, dout_LHD, *saved[:4])
            parts = program.backward(dout, Saved(q, k, v, out, saved.lse.index_select(1, index)))
            for whole, part in zip((dq, dk, dv), parts, strict=True):
                self.put(index, whole, part)
        return with_sinks((dq, dk, dv), dout_LHD, saved)

    def taken(self, index: torch.Tensor, *wholes: torch.Tensor) -> list[torch.Tensor]:
        return [take_rows(whole, index, self.kernel.layout) for whole in wholes]

    def put(self, index: torch.Tensor, whole: torch.Tensor, part: torch.Tensor) -> None:
        whole.index_copy_(0, index, part)
