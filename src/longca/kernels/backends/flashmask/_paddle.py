"""Paddle's FlashMask: per key, the rows that do not see it, as one or two intervals below and above the diagonal.

Untested: written from the documented interface of paddle.nn.functional.flashmask_attention. Paddle runs on a stream of its own, so
each call waits for both sides; the wait is inside the measured time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longca.errors import Refused
from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.shared import BlindRows, band_mask
from longca.masks import Mask

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask


class Flashmask(Kernel):
    name = "flashmask"
    about = "Paddle's FlashMask (column intervals), masks with as many queries as keys; untested"
    needs = "paddlepaddle-gpu"
    install = "install a current paddlepaddle-gpu as its own guide says; what pip finds is too old"
    modules = ("paddle",)
    backward = "autograd"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        refusal = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=range(8, 257, 8), equal_dims=True)
        if refusal is not None:
            return refusal
        if case.deterministic and case.backward:
            return No("has a deterministic backward only by a flag for the whole process, which LongCA does not set")
        if not isinstance(mask, Mask):
            return No("takes masks made of bands, not block patterns")
        try:
            mask.column_intervals()
        except Refused as refused:
            return No(f"cannot take this mask: {str(refused).rstrip('.')}")
        return Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return ColumnAttention(band_mask(mask), case)


class ColumnAttention(AutogradAttention):
    def __init__(self, mask: Mask, case: Case) -> None:
        from longca.kernels.lower import upload

        columns = mask.column_intervals()
        self.options: dict[str, Any] = {"causal": columns.causal, "return_softmax_lse": True}
        if case.scale:  # only newer releases take it
            self.options["softmax_scale"] = case.scale
        self.rows = as_paddle(upload(columns.rows, case.device)[None, None])
        self.blind = BlindRows(mask, case.device)
        self.bridge = bridge()

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, lse_HL = self.bridge.apply(self, q_LHD, k_LHD, v_LHD)
        lse_HL = lse_HL[:, : len(q_LHD)]  # rows are rounded up to whole tiles
        if self.blind.rows is None:
            return out_LHD, lse_HL
        return out_LHD.index_fill(0, self.blind.rows, 0.0), lse_HL.index_fill(1, self.blind.rows, float("-inf"))


def as_paddle(tensor: torch.Tensor) -> Any:
    """The same memory; Paddle may read it once torch has written it."""
    import paddle
    import torch

    torch.cuda.current_stream().synchronize()
    return paddle.utils.dlpack.from_dlpack(tensor.detach().contiguous())


def as_torch(tensor: Any) -> torch.Tensor:
    """The same memory, once Paddle has written it."""
    import paddle
    import torch

    paddle.device.synchronize()
    shared: torch.Tensor = torch.utils.dlpack.from_dlpack(tensor.detach())
    return shared


def bridge() -> Any:
    """A torch function whose graph is Paddle's; made here because torch is not imported at the top of this file."""
    import paddle
    import torch

    class Bridge(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, attention: ColumnAttention, *qkv_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            ctx.inputs = [as_paddle(tensor.unsqueeze(0)) for tensor in qkv_LHD]
            for tensor in ctx.inputs:
                tensor.stop_gradient = False
            ctx.out, lse = paddle.nn.functional.flashmask_attention(*ctx.inputs, attention.rows, **attention.options)
            out_LHD, lse_HL = as_torch(ctx.out).squeeze(0), as_torch(lse).squeeze(0)
            ctx.mark_non_differentiable(lse_HL)
            return out_LHD, lse_HL

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
            dout = as_paddle(grads[0].unsqueeze(0))
            return None, *(as_torch(grad).squeeze(0) for grad in paddle.grad(ctx.out, ctx.inputs, dout, retain_graph=True))

    return Bridge
