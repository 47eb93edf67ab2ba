"""`longca.attention` as operators that torch.compile knows: their shapes, and the backward of the one as the other.

A compiled graph holds no Python objects, so the operators get the handles of masks (`masks.handle`) and the kernel by name. Handles are
plain numbers for the compiler: it compiles once for one mask and once more for all others of that length. `_kept` holds the last masks
that were used, so that a backward still finds one which the caller has dropped since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch

from longca.errors import BadInput, Refused
from longca.kernels import batches, registry
from longca.kernels.base import Attention, Kernel
from longca.kernels.functional import (
    KernelLike,
    checked_sinks,
    lse_dtype,
    make_case,
    no_autocast,
    prepared_for,
    refuse_lengths,
    refuse_tensors,
    run_backward,
    run_forward,
)
from longca.kernels.inputs import in_layout
from longca.masks import AnyMask
from longca.masks.handle import mask_of

MOST_KEPT = 256  # masks between a forward and its backward: more than layers times micro-batches need
_kept: OrderedDict[int, AnyMask] = OrderedDict()


def compiled_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, masks: AnyMask | Sequence[AnyMask], kernel: KernelLike, scale: float,
    softcap: float, sinks: torch.Tensor | None, deterministic: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns out and lse; traced by torch.compile, so it does no more than it must."""
    if kernel is not None and not isinstance(kernel, str):
        raise BadInput(
            "inside torch.compile a kernel is given by name; name the plugin's kernel after longca.kernels.registry.load_plugin."
        )
    several = isinstance(masks, (list, tuple))
    handles = [mask.handle for mask in masks] if several else [masks.handle] * (q.shape[0] if q.dim() == 4 else 1)  # type: ignore[union-attr]
    backward = torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad or (sinks is not None and sinks.requires_grad)
    )
    out, lse = _forward(q, k, v, sinks, handles, kernel or "", float(scale), float(softcap), deterministic, backward, return_lse)
    return out, lse


def _find(handles: Sequence[int]) -> tuple[AnyMask, ...]:
    """Returns the masks, and keeps them for a backward."""
    masks = []
    for handle in handles:
        try:
            mask = _kept.pop(handle) if handle in _kept else mask_of(handle)
        except KeyError:
            raise BadInput(f"a mask was dropped before its backward ran, and {MOST_KEPT} others were used since; hold on to it.") from None
        _kept[handle] = mask
        masks.append(mask)
    while len(_kept) > max(MOST_KEPT, len(masks)):
        _kept.popitem(last=False)
    return tuple(masks)


def _prepared(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, handles: Sequence[int], kernel: str, scale: float,
    softcap: float, deterministic: bool, backward: bool, return_lse: bool,
) -> tuple[Kernel, Attention]:  # fmt: skip
    masks = _find(handles)
    refuse_lengths(q, k, masks)
    q, k, v = (x.flatten(0, 1) if x.dim() == 4 else x for x in (q, k, v))
    case = make_case(q, k, v, scale, softcap, sinks is not None, deterministic, backward)
    defined = registry.plugin_class(kernel)
    return prepared_for(kernel or None, batches.joined(masks), case, q.device.index, compiled=True, defined=defined)


def _flat(kernel: Kernel, *tensors: torch.Tensor) -> list[torch.Tensor]:
    return [in_layout(x.flatten(0, 1) if x.dim() == 4 else x, kernel.layout) for x in tensors]


@torch.library.custom_op("longca::attention", mutates_args=())
def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, masks: list[int], kernel: str, scale: float,
    softcap: float, deterministic: bool, backward: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns out and lse of the kernel; contiguous, as the compiler expects them."""
    with torch.cuda.device_of(q), no_autocast(q):
        chosen, prepared = _prepared(q, k, v, sinks, masks, kernel, scale, softcap, deterministic, backward, return_lse)
        q_LHD, k_LHD, v_LHD = _flat(chosen, q, k, v)
        out, lse = run_forward(prepared, q_LHD, k_LHD, v_LHD, checked_sinks(sinks, q))
    out_shape, lse_shape = _shapes(q, v)
    if lse is None:
        if return_lse:
            raise Refused(f"{chosen.label} gives no lse here; take another kernel, or leave out return_lse.")
        lse = torch.full(lse_shape, float("nan"), dtype=lse_dtype(q), device=q.device)
    elif q.dim() == 4:
        lse = lse.unflatten(1, (q.shape[0], -1)).transpose(0, 1)
    return out.reshape(out_shape).contiguous(), lse.contiguous()


def _shapes(q: torch.Tensor, v: torch.Tensor) -> tuple[list[int], list[int]]:
    """Returns the shapes of out [.., Lq, Hq, Dv] and lse [.., Hq, Lq]."""
    return [*q.shape[:-1], v.shape[-1]], [*q.shape[:-3], q.shape[-2], q.shape[-3]]


@_forward.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, masks: list[int], *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    refuse_tensors(q, k, v, batched=True)
    checked_sinks(sinks, q)
    if len(masks) != (q.shape[0] if q.dim() == 4 else 1):
        raise BadInput(f"there are {len(masks)} masks for {'one sequence' if q.dim() == 3 else f'a batch of {q.shape[0]}'}.")
    out_shape, lse_shape = _shapes(q, v)
    return q.new_empty(out_shape), q.new_empty(lse_shape, dtype=lse_dtype(q))


@torch.library.custom_op("longca::attention_backward", mutates_args=())
def _backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, out: torch.Tensor,
    lse: torch.Tensor, masks: list[int], kernel: str, scale: float, softcap: float, deterministic: bool, backward: bool,
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Returns dq, dk, dv and dsinks, which is empty where there are no sinks."""
    with torch.cuda.device_of(q), no_autocast(q):
        chosen, prepared = _prepared(q, k, v, sinks, masks, kernel, scale, softcap, deterministic, backward, return_lse)
        dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD = _flat(chosen, dout, q, k, v, out)
        lse_HL = lse.transpose(0, 1).flatten(1) if q.dim() == 4 else lse
        given = checked_sinks(sinks, q)
        dq, dk, dv, *dsinks = run_backward(prepared, dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL.contiguous(), given)
    gradients = (gradient.reshape(x.shape).contiguous() for gradient, x in zip((dq, dk, dv), (q, k, v), strict=True))
    return *gradients, dsinks[0].to(sinks.dtype) if sinks is not None else q.new_empty(0)  # type: ignore[return-value]


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
