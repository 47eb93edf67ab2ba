"""The kernel that runs where `best` was asked for: the forward of one kernel and the backward of another, or one kernel for both."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, Layout, Yes
from longca.kernels.inputs import in_layout

if TYPE_CHECKING:
    from torch import Tensor

    from longca.kernels.base import Gradients, GradientsWithSinks
    from longca.masks import AnyMask


class Pair(Kernel):
    """Two kernels as one, under the name `best`. `chose` names them."""

    name = "best"
    devices = ("cpu", "cuda")
    takes_negative_scale = takes_empty = takes_softcap = True
    sinks = "native"

    def __init__(self, forward: Kernel, backward: Kernel | None = None) -> None:
        super().__init__()
        self.preparing = ""  # which of them, for a caller that gets its refusal
        self.forward_kernel, self.backward_kernel, self.layout = forward, backward or forward, forward.layout
        self.composed = forward.label != self.backward_kernel.label
        self.chose = f"{forward.label} + {self.backward_kernel.label}" if self.composed else forward.label
        self.backward = "functional" if self.composed else forward.backward

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        return Yes()

    def lse_in(self, case: Case) -> bool:
        return self.forward_kernel.lse_in(case)

    def workspace(self, case: Case) -> int:
        return self.backward_kernel.workspace(case)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        self.preparing = self.forward_kernel.label
        if not self.composed:
            return self.forward_kernel.prepare(mask, case)
        first = self.forward_kernel.prepare(mask, forward_case(case))
        self.preparing = self.backward_kernel.label
        return PairAttention(first, self.backward_kernel.prepare(mask, backward_case(case)), self.backward_kernel.layout)


def forward_case(case: Case) -> Case:
    """Returns the case of a forward whose backward is another kernel's."""
    return replace(case, backward=False, partial_backward=False)


def backward_case(case: Case) -> Case:
    """Returns the case of a backward that starts from another kernel's out and lse."""
    return replace(case, partial_backward=True)


class PairAttention(Attention):
    """Gives the backward its inputs in its own memory order; where the two kernels share one, nothing is copied."""

    def __init__(self, first: Attention, second: Attention, layout: Layout) -> None:
        self._first, self._second, self._layout = first, second, layout

    def forward(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._first.forward(q_LHD, k_LHD, v_LHD)

    def forward_with_sinks(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor | None]:
        return self._first.forward_with_sinks(q_LHD, k_LHD, v_LHD, sinks_H)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        return self._second.backward(*self._ordered(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD), _contiguous(lse_HL))

    def backward_with_sinks(
        self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None, sinks_H: Tensor
    ) -> GradientsWithSinks:
        tensors = self._ordered(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD)
        return self._second.backward_with_sinks(*tensors, _contiguous(lse_HL), sinks_H)

    def _ordered(self, *tensors_LHD: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        dout, q, k, v, out = (in_layout(x, self._layout) for x in tensors_LHD)
        return dout, q, k, v, out


def _contiguous(lse_HL: Tensor | None) -> Tensor | None:
    return None if lse_HL is None else lse_HL.contiguous()
