"""The cuDNN frontend's block-sparse attention (CuTe DSL): uniform blocks of 64 or 128.

The library's backward needs equal heads. For grouped ones KV heads are repeated, and their gradients are added up in fp32.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from longca.kernels.base import BYTES, Answer, Attention, Case, Kernel, No, Preference, refuse_shapes
from longca.kernels.block_lists import block_size, first_refusal, refuse_blind_rows, refuse_pattern, refuse_short_blocks
from longca.kernels.shared import sum_heads
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients

SIZES, DIMS = (64, 128), (64, 96, 128)


class CudnnBlockSparse(Kernel):
    name = "cudnn_bsa"
    about = "the cuDNN frontend's block-sparse attention (CuTe DSL, Hopper and Blackwell): uniform blocks of 64 or 128"
    needs = "nvidia-cudnn-frontend==1.32.0 nvidia-cutlass-dsl[cu13]"
    modules = ("cudnn", "cutlass", "tvm_ffi")
    tested = "H200, not its grouped backward"
    capability = (9, 0)
    preference = Preference(cuda=56)
    gqa = "expands in backward"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if not (answer := first_refusal(refuse_shapes(case, dtypes=("bf16", "fp16"), dims=DIMS), refuse_pattern(mask, case, SIZES))):
            return answer
        assert isinstance(mask, BlockMask)
        return first_refusal(refuse_short_blocks(mask), refuse_blind_rows(mask), self._backward(case))

    def _backward(self, case: Case) -> No | None:
        if not case.backward:
            return None
        if case.dtype != "bf16" or (case.head_dim, case.head_dim_v) != (128, 128):
            return No(f"takes bf16 with heads of 128 in its backward, not {case.dtype} with {case.head_dim}/{case.head_dim_v}")
        if case.deterministic:
            return No("has a backward that adds up in no fixed order")
        return None

    def workspace(self, case: Case) -> int:
        """Bytes of the repeated k and v and of their gradients."""
        return 2 * case.seqlen_k * case.heads_q * (case.head_dim + case.head_dim_v) * BYTES[case.dtype] if case.group > 1 else 0

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return _BlockSparse(mask, case)


class _BlockSparse(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        from longca.kernels.block_lists import index_lists, kept_of_query_heads

        self._group = case.group
        count, index = index_lists(kept_of_query_heads(mask, case)[None])
        most = int(count.max())
        self.lists: dict[str, Any] = dict(q2k_block_index=index[..., :most].contiguous(), block_sparse_num=most)
        if int(count.min()) < most:
            self.lists["q2k_block_nums"] = count
        self.options: dict[str, Any] = dict(sparse_block_size=block_size(mask), softmax_scale=case.softmax_scale, layout="bshd")

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from cudnn.block_sparse_attention import block_sparse_attention_forward

        with redirect_stdout(sys.stderr):  # the library prints when it compiles
            result = block_sparse_attention_forward(*(x.unsqueeze(0) for x in (q_LHD, k_LHD, v_LHD)), **self.lists, **self.options)
        return result["o_tensor"][0], result["lse_tensor"][0]

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        from cudnn.block_sparse_attention import block_sparse_attention_backward

        assert lse_HL is not None
        k, v = (x.repeat_interleave(self._group, 1) if self._group > 1 else x for x in (k_LHD, v_LHD))
        tensors = (x.unsqueeze(0) for x in (dout_LHD, q_LHD, k, v, out_LHD, lse_HL))
        with redirect_stdout(sys.stderr):
            result = block_sparse_attention_backward(*tensors, **self.lists, **self.options)
        dq, dk, dv = (result[f"{name}_tensor"][0] for name in ("dq", "dk", "dv"))
        return dq, sum_heads(dk, self._group), sum_heads(dv, self._group)
