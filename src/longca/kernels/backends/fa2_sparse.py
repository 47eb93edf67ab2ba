"""Block-Sparse-Attention (FlashAttention-2 with blocks of 128, one pattern per query head)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.kernels.shared import older_than
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch

SIZE = 128
LEAST = (0, 0, 2)  # older releases return other values, and have no backward for these blocks


class Fa2Sparse(Kernel):
    name = "fa2_sparse"
    about = "Block-Sparse-Attention (FlashAttention-2): uniform blocks of 128"
    needs = "block-sparse-attn"
    install = "build block-sparse-attention from its source; pip does not find it"
    modules = ("block_sparse_attn",)
    gives_lse = False
    backward = "autograd"
    tested = "H200 (Block-Sparse-Attention 0.0.2, built from its source)"

    def present(self) -> Answer:
        if number := older_than("block_sparse_attn", LEAST):
            return No(f"needs Block-Sparse-Attention {'.'.join(map(str, LEAST))} or newer, and {number} is installed; build a newer one")
        return Yes()

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        shapes = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=(32, 64, 128), equal_dims=True)
        if not (answer := first_refusal(shapes, refuse_pattern(mask, case, (SIZE,)))):
            return answer
        assert isinstance(mask, BlockMask)
        return first_refusal(refuse_blind_rows(mask))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return BlockSparseAttention(mask, case)


class BlockSparseAttention(AutogradAttention):
    """Calls the library's inner functions: its public function sorts the patterns anew in every call."""

    def __init__(self, mask: BlockMask, case: Case) -> None:
        import torch
        from block_sparse_attn import block_sparse_attn_interface as library

        from longca.kernels.block_lists import kept_of_query_heads
        from longca.kernels.lower import upload

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
        self.library: Any = library
        self.deterministic, self.function = case.deterministic, autograd_function()

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        return self.function.apply(self, q_LHD, k_LHD, v_LHD), None

    def library_forward(self, *qkv: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns (out, lse, unused, state of the random generator), whose lse only the library's backward reads."""
        call, flags = self.library._block_sparse_attn_forward, {"exact_streaming": False, "return_softmax": False}
        return tuple(call(*qkv, row_blockmask=self.by_row, **flags, **self.options))

    def library_backward(self, dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *kept: Any) -> list[torch.Tensor]:
        import torch

        out, lse, random_state = kept
        gradients = [torch.empty_like(x) for x in (q, k, v)]
        flags = {"zero_tensors": True, "deterministic": self.deterministic, "rng_state": random_state}
        call = self.library._block_sparse_attn_backward
        call(dout.contiguous(), q, k, v, out, lse, *gradients, col_blockmask=self.by_column, **flags, **self.options)
        return gradients


@cache
def autograd_function() -> Any:
    """Returns a torch function over the library's two; made here because torch is not imported at the top of this file."""
    import torch
    from torch.autograd.function import once_differentiable

    class BlockSparse(torch.autograd.Function):
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

    return BlockSparse
