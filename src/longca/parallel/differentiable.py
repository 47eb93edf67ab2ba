"""What ranks compute together, as functions that autograd knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from longca.kernels.functional import no_autocast
from longca.kernels.inputs import in_layout
from longca.parallel.comm.base import Comm
from longca.parallel.primitives.gather import order_of
from longca.parallel.primitives.program import Program, whole_heads
from longca.parallel.primitives.rows import take_rows
from longca.parallel.ranges import Shards


def through(
    program: Program,
    layout: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sinks: torch.Tensor | None = None,
    return_lse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns out and, where it is asked for and the kernel gives it, the lse of a rank's program."""
    tensors = [in_layout(x, layout) for x in (q, k, v)]
    with no_autocast(q):
        out, lse = _Attention.apply(program, layout, return_lse, *tensors, sinks)  # type: ignore[no-untyped-call]
    return out, lse


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, program: Program, layout: Any, with_lse: bool, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        sinks: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
        out, kept = program.forward(q, k, v) if sinks is None else program.forward(q, k, v, sinks)
        ctx.program, ctx.layout, ctx.kept_type, ctx.sinks = program, layout, type(kept), sinks
        ctx.save_for_backward(*kept)
        lse = program.own_lse(kept) if with_lse else None
        if lse is not None:
            lse = lse.detach().clone()  # what backward needs must not be an output
            ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dout = in_layout(grads[0], ctx.layout)
        with no_autocast(dout):
            dq, dk, dv, *dsinks = ctx.program.backward(dout, ctx.kept_type(*ctx.saved_tensors))
        return None, None, None, dq, dk, dv, whole_heads(ctx.program, dsinks[0], ctx.sinks) if dsinks else None


def gathered(x: torch.Tensor, shards: Shards, comm: Comm) -> torch.Tensor:
    """Returns all tokens in order from a rank's own, which are the first axis. A gradient is the sum of all ranks'."""
    return _Gather.apply(x, shards, comm)  # type: ignore[no-untyped-call, no-any-return]


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shards: Shards, comm: Comm) -> torch.Tensor:
        ctx.shards, ctx.comm = shards, comm
        return all_tokens(x, shards, comm)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return own_sums(grads[0], ctx.shards, ctx.comm), None, None


def all_tokens(x: torch.Tensor, shards: Shards, comm: Comm) -> torch.Tensor:
    """Returns all tokens in order from a rank's own, without a gradient."""
    order = order_of(shards)
    whole = comm.empty((order.spans[-1].stop, *x.shape[1:]), x.dtype)
    comm.all_gather([x.contiguous()], [[whole[span]] for span in order.spans]).wait()
    return take_rows(whole, None if order.in_order else torch.from_numpy(order.place_of).to(x.device), "LHD")


def own_sums(dout: torch.Tensor, shards: Shards, comm: Comm) -> torch.Tensor:
    """Returns the sum of all ranks' gradients of this rank's tokens, from its gradients of all tokens in order."""
    order = order_of(shards)
    taken = take_rows(dout.contiguous(), None if order.in_order else torch.from_numpy(order.token_of).to(dout.device), "LHD")
    parts = [[taken[span]] for span in order.spans]
    own = torch.empty_like(parts[comm.rank][0], dtype=torch.promote_types(dout.dtype, torch.float32))  # a sum is rounded once
    comm.reduce_scatter(parts, [own]).wait()
    return own.to(dout.dtype)


def summed_over_ranks(x: torch.Tensor, comm: Comm, gradient: int) -> torch.Tensor:
    """Returns the sum of all ranks' numbers. The gradient of this rank's is that of the sum, times `gradient`."""
    return _Sum.apply(x, comm, gradient)  # type: ignore[no-untyped-call, no-any-return]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, comm: Comm, gradient: int) -> torch.Tensor:
        ctx.gradient = gradient
        of_all = [comm.empty((1,), x.dtype) for _ in range(comm.size)]
        comm.all_gather([x.reshape(1)], [[number] for number in of_all]).wait()
        return torch.stack(of_all).sum()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return grads[0] * ctx.gradient, None, None
