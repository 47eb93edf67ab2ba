"""FlashMask's port for torch: the operators torch.ops.flashmask.fwd and .bwd, called by keyword."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from longca.kernels.base import Attention, Case
from longca.kernels.lower import upload
from longca.kernels.shared import band_mask
from longca.masks import BlockMask

if TYPE_CHECKING:
    from torch import Tensor

    from longca.kernels.base import Gradients
    from longca.masks import AnyMask

UNUSED = ("dq", "dk", "dv", "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k")


def operators() -> Any:
    """Loads the operators and returns torch.ops.flashmask."""
    import_module("flashmask")
    if not hasattr(torch.ops.flashmask, "fwd"):
        import_module("flashmask._C")
    return torch.ops.flashmask


class OperatorAttention(Attention):
    """Tensors are [1, S, H, D], lse is [1, H, S]."""

    def __init__(self, mask: AnyMask, case: Case) -> None:
        self.operators, self.deterministic = operators(), case.deterministic
        self.options: dict[str, Any] = {
            "softmax_scale": case.softmax_scale,  # the operators' default is 0
            "window_size_left": -1,
            "window_size_right": -1,
            "softcap": 0.0,
        }
        if isinstance(mask, BlockMask):
            hides_nothing = torch.tensor([mask.seqlen_q, 0], dtype=torch.int32, device=case.device)
            rows = hides_nothing.expand(1, mask.heads, mask.seqlen_k, 2).contiguous()
            blocks = upload(mask.kept, case.device).to(torch.int32)[None]
            self.options |= {"is_causal": False, "startend_row_indices": rows, "block_mask": blocks}
        else:
            columns = band_mask(mask).column_intervals()
            rows = upload(columns.rows, case.device)[None, None]
            self.options |= {"is_causal": columns.causal, "startend_row_indices": rows, "block_mask": None}

    def forward(self, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (x.contiguous()[None] for x in (q_LHD, k_LHD, v_LHD))
        out, lse = self.operators.fwd(q=q, k=k, v=v, **self.options)
        return out[0], lse[0]

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        assert lse_HL is not None
        names = ("dout", "q", "k", "v", "out", "softmax_lse")
        tensors = (dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD, lse_HL)
        given = {name: x.contiguous()[None] for name, x in zip(names, tensors, strict=True)}
        flags = {"deterministic": self.deterministic, "sm_margin": 0}
        dq, dk, dv = self.operators.bwd(**given, **dict.fromkeys(UNUSED), **flags, **self.options)
        return dq[0], dk[0], dv[0]
