"""What ranks of a plan do together as operators that torch.compile knows, like those of `kernels/operator.py`: the plan goes by its
handle.

A compiled graph keeps tensors whose shapes it knows: q, k, v, out and lse of this rank's tokens. So methods that split heads exchange
these once more before their backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from longca.errors import BadInput
from longca.kernels import registry as kernels
from longca.kernels.functional import checked_sinks, lse_dtype, no_autocast
from longca.kernels.inputs import in_layout
from longca.masks.handle import mask_of
from longca.parallel.differentiable import all_tokens, own_sums, summed_over_ranks
from longca.parallel.primitives.program import Program, whole_heads

if TYPE_CHECKING:
    from longca.parallel.plan import Plan


def compiled_attention(
    plan: Plan, tensors: Sequence[torch.Tensor], sinks: torch.Tensor | None, name: str, entries: int, scale: float, softcap: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out and lse of tensors [L, H, D]; traced by torch.compile, so it does no more than it must."""
    q, k, v = tensors
    backward = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sinks is not None and sinks.requires_grad)
    )
    out, lse = _forward(q, k, v, sinks, plan.handle, name, entries, float(scale), float(softcap), backward)
    return out, lse


def compiled_sum(plan: Plan, x: torch.Tensor, gradient: int) -> torch.Tensor:
    """Returns the sum of all ranks' numbers, as `differentiable.summed_over_ranks` does."""
    return _sum(x, plan.handle, gradient)  # type: ignore[no-any-return]


@torch.library.custom_op("longca::parallel_sum", mutates_args=())
def _sum(x: torch.Tensor, plan: int, gradient: int) -> torch.Tensor:
    return summed_over_ranks(x, _plan(plan).own_group().comm, gradient)


@_sum.register_fake
def _(x: torch.Tensor, *_: Any) -> torch.Tensor:
    return x.new_empty(())


_sum.register_autograd(
    lambda ctx, total: (total * ctx.gradient, None, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "gradient", inputs[2])
)


def compiled_gather(plan: Plan, x: torch.Tensor, axis: int) -> torch.Tensor:
    """Returns all tokens in order, as `Plan.gather` does."""
    return _gather(x, plan.handle, axis, plan.tokens, plan.seqlen)  # type: ignore[no-any-return]


@torch.library.custom_op("longca::parallel_gather", mutates_args=())
def _gather(x: torch.Tensor, plan: int, axis: int, own: int, whole: int) -> torch.Tensor:
    given = _plan(plan)
    return all_tokens(x.movedim(axis, 0), given.shards, given.own_group().comm).movedim(0, axis).contiguous()


@_gather.register_fake
def _(x: torch.Tensor, plan: int, axis: int, own: int, whole: int) -> torch.Tensor:
    return x.new_empty([*x.shape[:axis], whole, *x.shape[axis + 1 :]])


@torch.library.custom_op("longca::parallel_gather_backward", mutates_args=())
def _own_sums(dout: torch.Tensor, plan: int, axis: int, own: int) -> torch.Tensor:
    given = _plan(plan)
    return own_sums(dout.movedim(axis, 0), given.shards, given.own_group().comm).movedim(0, axis).contiguous()


@_own_sums.register_fake
def _(dout: torch.Tensor, plan: int, axis: int, own: int) -> torch.Tensor:
    return dout.new_empty([*dout.shape[:axis], own, *dout.shape[axis + 1 :]])


_gather.register_autograd(
    lambda ctx, dout: (_own_sums(dout, *ctx.settings), None, None, None, None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "settings", inputs[1:4]),
)


def _plan(handle: int) -> Plan:
    try:
        return cast("Plan", mask_of(handle))
    except KeyError:
        raise BadInput("a plan was dropped before its backward ran; hold on to it.") from None


def _program(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, handle: int, name: str, entries: int, scale: float,
    softcap: float, backward: bool,
) -> tuple[Program, Any]:  # fmt: skip
    plan = _plan(handle)
    program = plan.program(name, plan.case_of(q, k, v, entries, scale, softcap, sinks is not None, backward), compiled=True)
    return program, kernels.choices(plan.kernel)[0].layout


@torch.library.custom_op("longca::parallel_attention", mutates_args=())
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, plan: int, name: str, entries: int, scale: float,
    softcap: float, backward: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    with torch.cuda.device_of(q), no_autocast(q):
        given = checked_sinks(sinks, q)
        program, layout = _program(q, k, v, sinks, plan, name, entries, scale, softcap, backward)
        out, kept = program.forward(*(in_layout(x, layout) for x in (q, k, v)), *(() if given is None else (given,)))
        lse = program.own_lse(kept)
    if lse is None:
        lse = torch.full((q.shape[1], len(q)), float("nan"), dtype=lse_dtype(q), device=q.device)
    return out.contiguous(), lse.contiguous()


@_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty([*q.shape[:2], v.shape[2]]), q.new_empty([q.shape[1], q.shape[0]], dtype=lse_dtype(q))


@torch.library.custom_op("longca::parallel_attention_backward", mutates_args=())
def _backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, out: torch.Tensor,
    lse: torch.Tensor, plan: int, name: str, entries: int, scale: float, softcap: float, backward: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns dq, dk, dv and dsinks, which is empty where there are no sinks."""
    with torch.cuda.device_of(q), no_autocast(q):
        program, layout = _program(q, k, v, sinks, plan, name, entries, scale, softcap, backward)
        given = checked_sinks(sinks, q)
        dout, q, k, v, out = (in_layout(x, layout) for x in (dout, q, k, v, out))
        dq, dk, dv, *dsinks = program.backward(dout, program.saved(q, k, v, out, lse, given))
    gradients = (dq.contiguous(), dk.contiguous(), dv.contiguous())
    return *gradients, q.new_empty(0) if sinks is None or given is None else whole_heads(program, dsinks[0], given).to(sinks.dtype)


@_backward.register_fake
def _(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    return dq, dk, dv, q.new_empty(0) if sinks is None else sinks.new_empty(sinks.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, sinks, *ctx.settings = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, sinks, *output)


def _gradients(ctx: Any, dout: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    q, k, v, sinks, out, lse = ctx.saved_tensors
    dq, dk, dv, dsinks = _backward(dout, q, k, v, sinks, out, lse, *ctx.settings)
    return dq, dk, dv, None if sinks is None else dsinks, *(None,) * len(ctx.settings)


_forward.register_autograd(_gradients, setup_context=_keep)
