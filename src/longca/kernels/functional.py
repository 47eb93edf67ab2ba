"""Attention as a differentiable function, for user code: the same kernels, masks and lowering as in the benchmark."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

import torch

from longca.errors import BadInput, Refused
from longca.kernels import registry
from longca.kernels.base import Attention, Case, Kernel, Yes
from longca.kernels.inputs import DTYPES, in_layout
from longca.masks import AnyMask, BlockMask, Mask
from longca.text import refuse_heads

_NAMES = {dtype: name for name, dtype in DTYPES.items()}
SHORT = 8192  # tokens up to which memory for every pair of tokens does not matter


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: AnyMask,
    *,
    kernel: str | Kernel | type[Kernel] | None = None,
    scale: float = 0.0,
    deterministic: bool = False,
) -> torch.Tensor:
    """Returns the attention [Lq, Hq, Dv] of q [Lq, Hq, D] over k [Lk, Hkv, D] and v [Lk, Hkv, Dv] under a mask; differentiable once.

    `kernel` is a name or name:variant, a function decorated with `@longca.kernel`, or a class derived from `longca.Kernel` or an object of
    one; it is run, or refused with the reason, never replaced. Without it the first kernel by `Kernel.preference` runs that is available
    here and supports this mask. `scale` 0 stands for 1/sqrt(D).
    """
    refuse_tensors(q, k, v, mask)
    if kernel is not None:
        registry.refuse_no_kernel(kernel)
    case = _case(q, k, v, mask, scale, deterministic)
    with torch.cuda.device_of(q):  # tables are made, and kernels launched, on the current device
        chosen, prepared = _prepared(kernel, mask, case, q.device.index)
        tensors = [in_layout(x, chosen.layout) for x in (q, k, v)]
        if chosen.backward == "functional":
            differentiable: torch.Tensor = _Function.apply(prepared, *tensors)  # type: ignore[no-untyped-call]
            return differentiable
        out = prepared.forward(*tensors)[0]
        if out.requires_grad:  # its gradient may have any strides
            out.register_hook(partial(in_layout, layout=chosen.layout))
        return out


def refuse_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: AnyMask) -> None:
    """Raises BadInput for tensors and masks that no kernel can take, whatever their lengths."""
    for name, given in (("q", q), ("k", k), ("v", v)):
        if not isinstance(given, torch.Tensor):
            raise BadInput(f"{name} must be a torch.Tensor, not {type(given).__name__}; torch.as_tensor makes one.")
    if not isinstance(mask, Mask | BlockMask):
        raise BadInput(f"the mask must be one of longca.masks, such as longca.masks.causal(8192), not {mask!r}.")
    shapes = f"q {list(q.shape)}, k {list(k.shape)}, v {list(v.shape)}"
    if {q.dim(), k.dim(), v.dim()} != {3} or k.shape[:2] != v.shape[:2] or q.shape[2] != k.shape[2]:
        raise BadInput(f"attention takes q [Lq, Hq, D], k [Lk, Hkv, D] and v [Lk, Hkv, Dv], not {shapes}.")
    refuse_heads(q.shape[1], k.shape[1])
    if q.dtype not in _NAMES or k.dtype != q.dtype or v.dtype != q.dtype:
        raise BadInput(f"q, k and v must share one dtype of {', '.join(_NAMES.values())}, not {q.dtype}, {k.dtype}, {v.dtype}.")
    if len({x.device for x in (q, k, v)}) > 1:
        raise BadInput(f"q, k and v must lie on one device, not on {q.device}, {k.device} and {v.device}.")


def _case(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: AnyMask, scale: float, deterministic: bool) -> Case:
    if (len(q), len(k)) != (mask.seqlen_q, mask.seqlen_k):
        raise BadInput(f"the mask is for {mask.seqlen_q} queries and {mask.seqlen_k} keys, the tensors have {len(q)} and {len(k)}.")
    if not math.isfinite(scale):
        raise BadInput(f"scale must be a finite number, or 0 for 1/sqrt(head size), not {scale}.")
    backward = any(x.requires_grad for x in (q, k, v)) and torch.is_grad_enabled()
    return Case(
        len(q),
        len(k),
        q.shape[1],
        k.shape[1],
        q.shape[2],
        v.shape[2],
        _NAMES[q.dtype],
        q.device.type,
        scale,
        backward,
        False,
        deterministic,
    )


@lru_cache(maxsize=32)
def _prepared(asked: str | Kernel | type[Kernel] | None, mask: AnyMask, case: Case, index: int | None) -> tuple[Kernel, Attention]:
    """Returns a kernel and its prepared attention for one device; `index` tells devices of one kind apart."""
    if asked is not None:
        chosen = registry.choose(asked, mask, case)
        return chosen, registry.prepare(chosen, mask, case)
    for kernel in best_kernels(mask, case):
        with suppress(Refused):  # some kernels refuse only now, such as on a device that their library does not support
            return kernel, kernel.prepare(mask, case)
    raise Refused(f"no kernel that is available here can do {mask.name or 'this mask'} on {case.device}; `longca ls kernels` shows why.")


def best_kernels(mask: AnyMask, case: Case) -> list[Kernel]:
    """Returns the preferred kernels that are available and support this, best first; beyond `SHORT` tokens kernels that need memory for
    every pair come last."""
    lean, greedy = list[Kernel](), list[Kernel]()
    for kernel in registry.preferred(case.device):
        answer = registry.available(kernel, case.device) and registry.supports(kernel, mask, case)
        if isinstance(answer, Yes):
            (greedy if answer.quadratic and max(case.seqlen_q, case.seqlen_k) > SHORT else lean).append(kernel)
    return lean + greedy


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, prepared: Attention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, lse = prepared.forward(q, k, v)
        ctx.prepared = prepared
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q, k, v, out, lse = ctx.saved_tensors
        with torch.no_grad():
            dout = grads[0] if grads[0].stride() == out.stride() else torch.empty_like(out).copy_(grads[0])
            gradients = ctx.prepared.backward(dout, q, k, v, out, lse)
        if torch.is_grad_enabled():  # create_graph=True: without a node here, second derivatives would be wrong and not refused
            gradients = _NoSecondDerivative.apply(grads[0], q, k, v, *gradients)  # type: ignore[no-untyped-call]
        return (None, *gradients)


class _NoSecondDerivative(torch.autograd.Function):
    """Returns dq, dk and dv as functions of dout, q, k and v whose derivatives are refused."""

    @staticmethod
    def forward(ctx: Any, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *gradients: torch.Tensor) -> Any:
        return tuple(gradient.view_as(gradient) for gradient in gradients)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> None:
        raise Refused("this kernel has no second derivative; kernel='sdpa:math' has one, for masks made of bands.")
