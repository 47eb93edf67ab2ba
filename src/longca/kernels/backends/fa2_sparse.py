"""Block-Sparse-Attention (FlashAttention-2 with a block mask of 128 per head); written from its documentation, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longca.kernels.base import Answer, Attention, Case, Kernel, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch

SIZE = 128


class Fa2Sparse(Kernel):
    name = "fa2_sparse"
    about = "Block-Sparse-Attention (FlashAttention-2): uniform blocks of 128, forward"
    needs = "block-sparse-attn"
    install = "build block-sparse-attention from its source; pip does not find it"
    modules = ("block_sparse_attn",)
    gives_lse = False
    backward = "none"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        shapes = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=(32, 64, 128), equal_dims=True)
        if not (answer := first_refusal(shapes, refuse_pattern(mask, case, (SIZE,)))):
            return answer
        assert isinstance(mask, BlockMask)
        return first_refusal(refuse_blind_rows(mask))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return _BlockSparse(mask, case)


class _BlockSparse(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        from longca.kernels.lower import upload

        self.case = case
        self.patterns = upload(mask.kept, case.device).unsqueeze(0)
        pattern_of_head = np.arange(case.heads_q, dtype=np.int32) // (case.heads_q // mask.heads)
        self.mask_of_head = upload(pattern_of_head + 1, case.device)  # 0 would be a dense head
        lengths = (case.seqlen_q, case.seqlen_k)
        self.cu_q, self.cu_k = (upload(np.array([0, length], np.int32), case.device) for length in lengths)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        from block_sparse_attn import block_sparse_attn_func

        case = self.case
        masks = (self.mask_of_head, None, self.patterns)  # no head streams
        tensors = (q_LHD, k_LHD, v_LHD, self.cu_q, self.cu_k)
        out: torch.Tensor = block_sparse_attn_func(
            *tensors, *masks, case.seqlen_q, case.seqlen_k, 0.0, softmax_scale=case.softmax_scale, is_causal=False
        )
        return out, None
