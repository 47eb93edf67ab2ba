"""A forward and backward of one attention: in one call, in fp64, or by a method on ranks that are threads of this process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from longca.kernels import registry
from longca.kernels.base import Case, Layout
from longca.kernels.functional import attention
from longca.kernels.inputs import Inputs, in_layout, make
from longca.masks import AnyMask
from longca.parallel import ranges
from longca.parallel.comm.local import World
from longca.parallel.method import Plan
from longca.parallel.primitives.program import Program
from longca.parallel.ranges import Ranges

EXACT = "torch:chunked"  # the kernel that computes in fp64
Tensors = dict[str, torch.Tensor]  # out, dq, dk, dv [L, H, D] and lse [H, L], of the whole sequence
InputsOf = Callable[[Layout, Ranges], Inputs]  # of these tokens, in this memory order


def one_call(kernel: str, mask: AnyMask, inputs: Inputs) -> Tensors:
    q, k, v = (x.detach().requires_grad_() for x in inputs[:3])
    lse = Tensors()
    if registry.get(kernel).gives_lse:
        out, lse["lse"] = attention(q, k, v, mask, kernel=kernel, return_lse=True)
    else:
        out = attention(q, k, v, mask, kernel=kernel)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), inputs.dout)
    return {"out": out.detach(), **lse, "dq": dq, "dk": dk, "dv": dv}


def exact_step(mask: AnyMask, case: Case, seed: int) -> Tensors:
    """The same inputs, rounded to the dtype of the case, in fp64."""
    rounded = make(case, seed)
    return one_call(EXACT, mask, Inputs(*(x.double() for x in rounded)))


def step_on_ranks(programs: list[Program], plan: Plan, world: World, inputs_of: InputsOf, layout: Layout) -> Tensors:
    """Forward and backward of all ranks, put together. Tokens that no rank has are NaN."""
    case, whole = plan.case, Tensors()

    def run(rank: int) -> tuple[torch.Tensor | None, ...]:
        q, k, v, dout = inputs_of(layout, plan.rows(rank))
        out, saved = programs[rank].forward(q, k, v)
        return out, saved.lse, *programs[rank].backward(dout, saved)

    for rank, (out, lse, *gradients) in enumerate(world.run(run)):
        assert out is not None
        own = torch.from_numpy(ranges.tokens(plan.rows(rank))).to(out.device)
        for name, part in zip(("out", "dq", "dk", "dv"), (out, *gradients), strict=True):
            assert part is not None
            whole.setdefault(name, part.new_full((case.seqlen_q, *part.shape[1:]), float("nan")))[own] = part
        if lse is not None:
            rows = torch.from_numpy(ranges.tokens(programs[rank].rows)).to(lse.device)
            whole.setdefault("lse", lse.new_full((case.heads_q, case.seqlen_q), float("nan")))[slice(*programs[rank].heads), rows] = lse
    return whole


class RanksStep:
    """Calls a method on ranks that are threads of this process, any number of times."""

    def __init__(self, plan: Plan, inputs: Inputs, layout: Layout) -> None:
        self.plan, self.inputs, self.layout = plan, inputs, layout
        self.world = World(plan.ranks, plan.case.device)
        self.programs = [plan.program(comm) for comm in self.world.comms()]

    def __call__(self) -> Tensors:
        return step_on_ranks(self.programs, self.plan, self.world, self._inputs_of, self.layout)

    def _inputs_of(self, layout: Layout, rows: Ranges) -> Inputs:
        own = torch.from_numpy(ranges.tokens(rows)).to(self.inputs.q.device)
        return Inputs(*(in_layout(x[own], layout) for x in self.inputs))
