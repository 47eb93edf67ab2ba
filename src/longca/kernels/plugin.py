"""`@longca.kernel`: a function becomes a kernel, for users who have one and do not want to write a class."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from longca.errors import BadInput, Refused
from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, Layout, No, Yes

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask

Lowering = Callable[["AnyMask", Case], Any]


@overload
def kernel(function: Callable[..., Any], /) -> type[Kernel]: ...


@overload
def kernel(
    *,
    name: str = ...,
    devices: tuple[str, ...] = ...,
    layout: Layout = ...,
    lower: Lowering | None = ...,
    differentiable: bool = ...,
    gives_lse: bool = ...,
) -> Callable[[Callable[..., Any]], type[Kernel]]: ...


def kernel(
    plain: Callable[..., Any] | None = None,
    /,
    *,
    name: str = "",
    devices: tuple[str, ...] = ("cpu", "cuda"),
    layout: Layout = "LHD",
    lower: Lowering | None = None,
    differentiable: bool = True,
    gives_lse: bool = False,
) -> type[Kernel] | Callable[[Callable[..., Any]], type[Kernel]]:
    """Make `f(q_LHD, k_LHD, v_LHD, lowered, scale) -> out` or `-> (out, lse)` a kernel.

    `lower(mask, case)` makes what the function needs to know of the mask, once, outside the clock; it may raise
    `longca.Refused("reason")`. Without it the function gets the mask itself. The backward is torch's autograd. `gives_lse` says that the
    function always returns (out, lse), which the rings of context parallelism need. Without any of this, `@longca.kernel` will do.
    """

    def decorate(function: Callable[..., Any]) -> type[Kernel]:
        kernel_name, kernel_devices, kernel_layout, kernel_lse = name or function.__name__, devices, layout, gives_lse

        class FunctionKernel(Kernel):
            about = (function.__doc__ or "a plugin").strip().splitlines()[0]

            def supports(self, mask: AnyMask, case: Case) -> Answer:
                if lower is None:
                    return Yes()
                try:
                    lower(mask, case)
                except Refused as refused:
                    return No(f"cannot take this mask: {str(refused).rstrip('.')}")
                return Yes("lowered")

            def prepare(self, mask: AnyMask, case: Case) -> Attention:
                return _FunctionAttention(function, mask if lower is None else lower(mask, case), case)

        FunctionKernel.name, FunctionKernel.devices, FunctionKernel.layout = kernel_name, kernel_devices, kernel_layout
        FunctionKernel.capability, FunctionKernel.gives_lse = (0, 0), kernel_lse
        FunctionKernel.backward = "autograd" if differentiable else "none"
        FunctionKernel.__module__, FunctionKernel.__qualname__ = function.__module__, function.__qualname__
        return FunctionKernel

    if plain is not None and not callable(plain):
        raise BadInput(f"@longca.kernel takes its settings by name, such as name={plain!r}; write that.")
    return decorate if plain is None else decorate(plain)


class _FunctionAttention(AutogradAttention):
    def __init__(self, function: Callable[..., Any], lowered: Any, case: Case) -> None:
        self.function, self.lowered, self.scale = function, lowered, case.softmax_scale

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        answer = self.function(q_LHD, k_LHD, v_LHD, self.lowered, self.scale)
        return answer if isinstance(answer, tuple) else (answer, None)
