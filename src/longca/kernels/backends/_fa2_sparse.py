"""Block-Sparse-Attention's inner functions, with the lists of a pattern that is prepared once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from block_sparse_attn import block_sparse_attn_interface as library
from torch.autograd.function import once_differentiable

from longca.kernels.base import AutogradAttention, Case
from longca.kernels.block_lists import kept_of_query_heads
from longca.kernels.lower import upload
from longca.masks import BlockMask

SIZE = 128  # of a block


class BlockSparseAttention(AutogradAttention):
    """Calls the library's inner functions: its public function sorts the patterns anew in every call."""

    def __init__(self, mask: BlockMask, case: Case) -> None:
        kept = kept_of_query_heads(mask, case)[None]
        ones = torch.ones(case.heads_q, dtype=torch.int32, device=case.device)  # 1: a head with a pattern
        pattern_of_head, _ = library.replace_ones_with_count(ones)  # numbers these heads: each needs a pattern of its own
        cu_q, cu_k = (upload(np.array([0, length], np.int32), case.device) for length in (case.seqlen_q, case.seqlen_k))
        self.options: dict[str, Any] = {
            "cu_seqlens_q": cu_q,
            "cu_seqlens_k": cu_k,
            "m_block_dim": SIZE,
            "n_block_dim": SIZE,
            "head_mask_type": pattern_of_head,
            "streaming_info": None,
            "max_seqlen_q_": case.seqlen_q,
            "max_seqlen_k_": case.seqlen_k,
            "p_dropout": 0.0,
            "softmax_scale": case.softmax_scale,
            "is_causal": False,
            "window_size_left": -1,
            "window_size_right": -1,
        }
        self.by_row = library.convert_blockmask_row_reverse(kept, False)
        self.by_column = library.convert_blockmask_col_reverse(kept, False) if case.backward else None
        self.deterministic = case.deterministic

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        return BlockSparse.apply(self, q_LHD, k_LHD, v_LHD), None  # type: ignore[no-untyped-call]

    def library_forward(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns (out, lse, unused, state of the random generator), whose lse only the library's backward reads."""
        call, flags = library._block_sparse_attn_forward, {"exact_streaming": False, "return_softmax": False}
        return tuple(call(*qkv, row_blockmask=self.by_row, **flags, **self.options))

    def library_backward(self, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *kept: Any) -> list[torch.Tensor]:
        out, lse, random_state = kept
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        flags = {"zero_tensors": True, "deterministic": self.deterministic, "rng_state": random_state}
        call = library._block_sparse_attn_backward
        call(dout.contiguous(), q, k, v, out, lse, *gradients, col_blockmask=self.by_column, **flags, **self.options)
        return gradients


class BlockSparse(torch.autograd.Function):
    """A torch function over the library's two."""

    @staticmethod
    def forward(ctx: Any, attention: BlockSparseAttention, *qkv_LHD: torch.Tensor) -> torch.Tensor:
        qkv = [x.contiguous() for x in qkv_LHD]
        out, lse, _, random_state = attention.library_forward(*qkv)
        ctx.attention = attention
        ctx.save_for_backward(*qkv, out, lse, random_state)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return None, *ctx.attention.library_backward(grads[0], *ctx.saved_tensors)
