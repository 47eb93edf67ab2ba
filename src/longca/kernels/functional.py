"""Attention as a differentiable function, for user code: the same kernels, masks and lowering as in the benchmark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from typing import Any, Literal, overload

import torch

from longca.errors import BadInput, Refused
from longca.kernels import batches, registry
from longca.kernels.base import Attention, Case, Kernel, Prepared
from longca.kernels.bounded_cache import BoundedCache
from longca.kernels.choice.candidates import candidates
from longca.kernels.inputs import DTYPES, in_layout
from longca.masks import AnyMask
from longca.text import refuse_heads

FRAMEWORK = True

DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
DEVICES = ("cpu", "cuda")
MOST_BYTES = 256 << 20  # of masks and tables of prepared kernels that are kept
BEST = "best"  # the kernel that runs where none is named
KernelLike = str | Kernel | type[Kernel] | None


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: AnyMask | Sequence[AnyMask], *, kernel: KernelLike | PathLike[str] = ...,
    scale: float = ..., softcap: float = ..., sinks: torch.Tensor | None = ..., deterministic: bool = ..., return_lse: Literal[False] = ...,
) -> torch.Tensor: ...  # fmt: skip


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: AnyMask | Sequence[AnyMask], *, kernel: KernelLike | PathLike[str] = ...,
    scale: float = ..., softcap: float = ..., sinks: torch.Tensor | None = ..., deterministic: bool = ..., return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: AnyMask | Sequence[AnyMask],
    *,
    kernel: KernelLike | PathLike[str] = None,
    scale: float = 0.0,
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    deterministic: bool = False,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Returns the attention [Lq, Hq, Dv] of q [Lq, Hq, D] over k [Lk, Hkv, D] and v [Lk, Hkv, Dv] under a mask; differentiable once.

    With a batch, q is [B, Lq, Hq, D] (k and v likewise), and `mask` is one mask for all entries or a list with one mask per entry. A batch
    is one call of the kernel, in which entries are documents. `kernel` is a name or name:variant, a plugin file with one kernel, a function
    decorated with `@longca.kernel`, or a class derived from `longca.Kernel` or an object of it. If it does not support the call, an error
    states why; it is never replaced. The default is `best`: for each pass the fastest installed kernel that supports the call, chosen from
    records or by autotuning at the first call of its class.

    `scale` 0 means 1/sqrt(D). `softcap` c > 0 turns scaled scores s into c * tanh(s / c). `sinks` [Hq] are extra logits in the
    denominator of the softmax; they get a gradient. With `return_lse` the result is (out, lse). lse [Hq, Lq], or [B, Hq, Lq], is the
    natural log of the denominator, sinks included; it has no gradient. Under autocast, q, k and v are cast as torch's attention casts them.
    """
    q, k, v = autocast_tensors(q, k, v)
    kernel = fspath(kernel) if isinstance(kernel, PathLike) else kernel
    if torch.compiler.is_compiling():
        from longca.kernels.operator import compiled_attention

        result = compiled_attention(q, k, v, mask, kernel, scale, softcap, sinks, deterministic, return_lse)
    else:
        result = _attention(q, k, v, mask, kernel, scale, softcap, sinks, deterministic, return_lse)
    return result if return_lse else result[0]


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: AnyMask | Sequence[AnyMask], kernel: KernelLike, scale: float,
    softcap: float, sinks: torch.Tensor | None, deterministic: bool, return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    refuse_tensors(q, k, v, batched=True)
    if kernel is not None:
        registry.refuse_no_kernel(kernel)
    masks = batches.masks_of(given, len(q) if q.dim() == 4 else None)
    refuse_lengths(q, k, masks)
    batch = q.shape[0] if q.dim() == 4 else None
    if batch == 0:
        return q.new_zeros(*q.shape[:3], v.shape[3]), q.new_zeros(0, q.shape[2], q.shape[1], dtype=lse_dtype(q))
    q, k, v = (x.flatten(0, 1) if batch is not None else x for x in (q, k, v))
    sinks = checked_sinks(sinks, q)
    backward = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (q, k, v, sinks))
    case = make_case(q, k, v, scale, softcap, sinks is not None, deterministic, backward)
    with torch.cuda.device_of(q), no_autocast(q):  # tables are made, and kernels launched, on the current device
        defined = registry.plugin_class(kernel)
        chosen, prepared = prepared_for(kernel, batches.joined(masks), case, q.device.index, defined=defined)
        q, k, v = (in_layout(x, chosen.layout) for x in (q, k, v))
        plain = not (backward or torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0)
        out, lse = run_forward(prepared, q, k, v, sinks) if plain else differentiable(chosen, prepared, q, k, v, sinks)
    if return_lse and lse is None:
        raise Refused(f"{chosen.label} gives no lse here; take another kernel, or leave out return_lse.")
    lse = torch.empty(0) if lse is None else lse.detach()
    if batch is None:
        return out, lse
    return out.unflatten(0, (batch, -1)), lse.unflatten(1, (batch, -1)).transpose(0, 1) if lse.dim() == 2 else lse


def differentiable(
    kernel: Kernel, prepared: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns out, whose gradient is the kernel's, and lse."""
    if kernel.backward == "functional":
        function = _TransformedFunction if torch._C._are_functorch_transforms_active() else _Function
        out, lse = function.apply(prepared, q, k, v, sinks)  # type: ignore[no-untyped-call]
        return out, lse
    out, lse = run_forward(prepared, q, k, v, sinks)
    if out.requires_grad:  # its gradient may have any strides
        out.register_hook(partial(in_layout, layout=kernel.layout))
    return out, lse


def run_forward(
    prepared: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    return prepared.forward(q, k, v) if sinks is None else prepared.forward_with_sinks(q, k, v, sinks)


def run_backward(
    prepared: Attention, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor | None, sinks: torch.Tensor | None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Returns dq, dk, dv, and dsinks where there are sinks. dout gets the strides of out."""
    dout = dout if dout.stride() == out.stride() else torch.empty_like(out).copy_(dout)
    if sinks is None:
        return prepared.backward(dout, q, k, v, out, lse)
    return prepared.backward_with_sinks(dout, q, k, v, out, lse, sinks)


def refuse_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, batched: bool = False) -> None:
    """Raises BadInput for tensors that no kernel can take, whatever their lengths."""
    for name, given in (("q", q), ("k", k), ("v", v)):
        if not isinstance(given, torch.Tensor):
            raise BadInput(f"{name} must be a torch.Tensor, not {type(given).__name__}; torch.as_tensor makes one.")
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    fits = len({q.dim(), k.dim(), v.dim()}) == 1 and q.dim() in ((3, 4) if batched else (3,)) and q.shape[-1] > 0
    if not fits or k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1] or q.shape[:-3] != k.shape[:-3]:
        also = ", or all with a batch in front" if batched else ""
        raise BadInput(f"attention takes q [Lq, Hq, D], k [Lk, Hkv, D] and v [Lk, Hkv, Dv]{also}, not {shapes}.")
    refuse_heads(q.shape[-2], k.shape[-2])
    if q.dtype not in DTYPE_NAMES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise BadInput(f"q, k and v must share one dtype of {', '.join(DTYPE_NAMES.values())}, not {q.dtype}, {k.dtype}, {v.dtype}.")
    if len({x.device for x in (q, k, v)}) > 1:
        raise BadInput(f"q, k and v must lie on one device, not on {q.device}, {k.device} and {v.device}.")
    if q.device.type not in DEVICES:
        raise BadInput(f"kernels run on {' and '.join(DEVICES)}, not on {q.device.type}; move q, k and v.")


def refuse_lengths(q: torch.Tensor, k: torch.Tensor, masks: Sequence[AnyMask]) -> None:
    """Raises BadInput where a mask is for other lengths than the tensors have."""
    lengths = q.shape[-3], k.shape[-3]
    for mask in masks:
        if lengths != (mask.seqlen_q, mask.seqlen_k):
            swapped = (q.shape[-2], k.shape[-2]) == (mask.seqlen_q, mask.seqlen_k)
            raise BadInput(
                f"the mask is for {mask.seqlen_q} queries and {mask.seqlen_k} keys, the tensors have {lengths[0]} and {lengths[1]}"
                + ("; tokens come before heads, as in [L, H, D]: transpose them." if swapped else ".")
            )


def checked_sinks(sinks: torch.Tensor | None, q: torch.Tensor) -> torch.Tensor | None:
    """Returns the sinks as kernels take them, in the dtype of the lse; raises BadInput for other shapes, dtypes and devices."""
    if sinks is None:
        return None
    if not isinstance(sinks, torch.Tensor) or not sinks.is_floating_point() or tuple(sinks.shape) != (q.shape[-2],):
        given = f"{sinks.dtype} {list(sinks.shape)}" if isinstance(sinks, torch.Tensor) else repr(sinks)
        raise BadInput(f"sinks must be one logit per query head, a float tensor [{q.shape[-2]}], not {given}.")
    if sinks.device != q.device:
        raise BadInput(f"sinks must lie on the device of q, {q.device}, not on {sinks.device}.")
    return sinks.to(lse_dtype(q)).contiguous()


def lse_dtype(q: torch.Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def refuse_numbers(scale: float, softcap: float) -> None:
    """Raises BadInput for a scale or softcap that no kernel can take."""
    if not (isinstance(scale, int | float) and math.isfinite(scale)):
        raise BadInput(f"scale must be a finite number, or 0 for 1/sqrt(head size), not {scale}.")
    if not (isinstance(softcap, int | float) and math.isfinite(softcap) and softcap >= 0):
        raise BadInput(f"softcap must be a positive number, or 0 for none, not {softcap}.")


def make_case(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, softcap: float, sinks: bool, deterministic: bool, backward: bool
) -> Case:
    """Returns the case of tensors [L, H, D]."""
    refuse_numbers(scale, softcap)
    shape = len(q), len(k), q.shape[1], k.shape[1], q.shape[2], v.shape[2]
    extras = {"deterministic": deterministic, "softcap": float(softcap), "sinks": sinks}
    return Case(*shape, DTYPE_NAMES[q.dtype], q.device.type, float(scale), backward, **extras)  # type: ignore[arg-type]


def autocast_tensors(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Returns the tensors in the dtype of the autocast region, if there is one; fp64 stays, as everywhere under autocast."""
    q = tensors[0]
    if not isinstance(q, torch.Tensor) or q.device.type not in DEVICES or not torch.is_autocast_enabled(q.device.type):
        return tensors
    dtype = torch.get_autocast_dtype(q.device.type)
    return tuple(x.to(dtype) if isinstance(x, torch.Tensor) and x.dtype != torch.float64 else x for x in tensors)


def no_autocast(q: torch.Tensor) -> AbstractContextManager[Any]:
    """Inside a kernel nothing is cast: kernels that work in fp32 mean it."""
    kind = q.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def _prepared_for(
    asked: KernelLike, mask: AnyMask, case: Case, index: int | None, compiled: bool = False, defined: type[Kernel] | None = None
) -> Prepared:
    """Returns a kernel and its prepared attention for one device; `index` tells devices of one kind apart, and `defined` the classes that a
    plugin file gave to a name each time that it was loaded. A `compiled` call needs a kernel with a backward of its own."""
    chosen = registry.choose(asked or BEST, mask, case)
    if compiled and case.backward and chosen.backward != "functional":
        own = ", ".join(kernel.label for kernel in candidates(mask, case).backward) or "none here"
        raise Refused(
            f"the backward of {chosen.label} is torch's autograd, which a call inside torch.compile cannot use; kernels with a "
            f"backward of their own: {own}."
        )
    if compiled and chosen.chooses:  # only between such kernels
        case = replace(case, partial_backward=case.backward)
    prepared = registry.prepare(chosen, mask, case)
    return Prepared(prepared.kernel, _Copied(prepared.attention)) if prepared.kernel.returns_own_buffer else prepared


class _Copied(Attention):
    """A kernel that returns its own buffer: callers get copies, as autograd keeps them beyond the next call."""

    def __init__(self, attention: Attention) -> None:
        self._attention = attention

    def forward(self, *given: Any) -> Any:
        return _copies(self._attention.forward(*given))

    def backward(self, *given: Any) -> Any:
        return _copies(self._attention.backward(*given))

    def forward_with_sinks(self, *given: Any) -> Any:
        return _copies(self._attention.forward_with_sinks(*given))

    def backward_with_sinks(self, *given: Any) -> Any:
        return _copies(self._attention.backward_with_sinks(*given))


def _copies(results: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor | None, ...]:
    return tuple(None if x is None else x.clone() for x in results)


prepared_for = BoundedCache(_prepared_for, MOST_BYTES)


class _Function(torch.autograd.Function):
    """Forward and backward of a kernel that has both as functions."""

    @staticmethod
    def forward(
        ctx: Any, prepared: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        output = run_forward(prepared, q, k, v, sinks)
        _save(ctx, (prepared, q, k, v, sinks), output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, sinks, out, lse = ctx.saved_tensors
        with torch.no_grad(), no_autocast(q):
            gradients = run_backward(ctx.prepared, grads[0], q, k, v, out, lse, sinks)
        if torch.is_grad_enabled():  # create_graph=True: without a node here, second derivatives would be wrong and not refused
            gradients = _NoSecondDerivative.apply(grads[0], q, k, v, sinks, *gradients)  # type: ignore[no-untyped-call]
        return None, *gradients, *((None,) if sinks is None else ())


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.prepared = inputs[0]
    if output[1] is not None:
        ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[1:], *output)


class _TransformedFunction(_Function):
    """The same for torch.func, whose form of a function costs more time per call."""

    @staticmethod
    def forward(*inputs: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        return run_forward(*inputs)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        _save(ctx, inputs, output)

    @staticmethod
    def vmap(*_: Any) -> None:
        raise Refused("longca.attention does not run under torch.vmap; give it a batch [B, L, H, D] in one call.")

    @staticmethod
    def jvp(*_: Any) -> None:
        raise Refused("longca.attention has no forward-mode derivative; use torch.func.grad or vjp.")


class _NoSecondDerivative(torch.autograd.Function):
    """Returns dq, dk, dv and dsinks as functions of dout, q, k, v and sinks whose derivatives are refused."""

    @staticmethod
    def forward(*given: torch.Tensor) -> Any:
        return tuple(gradient.view_as(gradient) for gradient in given[5:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keeps nothing: the backward only refuses."""

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> None:
        raise Refused("this kernel has no second derivative; kernel='sdpa:math' has one, for masks made of bands.")
