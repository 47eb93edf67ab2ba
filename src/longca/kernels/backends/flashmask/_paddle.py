"""Paddle's flashmask_attention. Paddle runs on a stream of its own, so each call waits for both sides; the wait is part of the time."""

from __future__ import annotations

from typing import Any

import paddle
import torch
from torch.autograd.function import once_differentiable

from longca.kernels.base import AutogradAttention, Case
from longca.kernels.lower import upload
from longca.kernels.shared import BlindRows
from longca.masks import Mask


class PaddleAttention(AutogradAttention):
    def __init__(self, mask: Mask, case: Case) -> None:
        columns = mask.column_intervals()
        # its second version raises an error for any softmax_scale, even the default
        self.options: dict[str, Any] = {"causal": columns.causal, "return_softmax_lse": True}
        self.rows = as_paddle(upload(columns.rows, case.device)[None, None])
        self.blind = BlindRows(mask, case.device)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, lse = PaddleFunction.apply(self, q_LHD, k_LHD, v_LHD)  # type: ignore[no-untyped-call]
        length, heads, _ = q_LHD.shape
        # the buffer has a whole number of tiles of 128 rows per head, but the library writes rows of `length` numbers
        lse_HL = lse.flatten()[: heads * length].view(heads, length)
        return self.blind.in_graph(out_LHD, lse_HL)


def as_paddle(tensor: torch.Tensor) -> Any:
    """Returns a Paddle tensor of the same memory; Paddle may read it once torch has written it."""
    if tensor.is_cuda:
        torch.cuda.current_stream().synchronize()
    return paddle.utils.dlpack.from_dlpack(tensor.detach().contiguous())


def as_torch(tensor: Any) -> torch.Tensor:
    """Returns a torch tensor of the same memory, once Paddle has written it."""
    paddle.device.synchronize()
    shared: torch.Tensor = torch.utils.dlpack.from_dlpack(tensor.detach())
    return shared


class PaddleFunction(torch.autograd.Function):
    """A torch function whose graph is Paddle's."""

    @staticmethod
    def forward(ctx: Any, attention: PaddleAttention, *qkv_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.inputs = [as_paddle(tensor.unsqueeze(0)) for tensor in qkv_LHD]
        for tensor in ctx.inputs:
            tensor.stop_gradient = False
        ctx.out, lse = paddle.nn.functional.flashmask_attention(*ctx.inputs, attention.rows, **attention.options)
        out_LHD, lse = as_torch(ctx.out).squeeze(0), as_torch(lse)
        ctx.mark_non_differentiable(lse)
        return out_LHD, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        dout = as_paddle(grads[0].unsqueeze(0))
        return None, *(as_torch(grad).squeeze(0) for grad in paddle.grad(ctx.out, ctx.inputs, dout, retain_graph=True))
