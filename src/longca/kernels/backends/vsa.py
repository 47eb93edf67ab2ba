"""FastVideo's video sparse attention on given blocks of 64: its ThunderKittens kernels (`vsa`) and its Triton kernels (`vsa_triton`)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, AutogradAttention, Case, Kernel, No, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern, refuse_short_blocks
from longca.kernels.shared import refuse_other_scales
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from longca.kernels.base import Gradients

SIZE = 64


def _supports(mask: AnyMask, case: Case) -> Answer:
    shapes = refuse_shapes(case, dtypes=("bf16",), dims=(64, 128), equal_dims=True)
    if not (answer := first_refusal(shapes, refuse_pattern(mask, case, (SIZE,)))):
        return answer
    assert isinstance(mask, BlockMask)
    if case.group > 1:
        return No(f"needs as many KV heads as query heads, not {case.heads_q}:{case.heads_kv}")
    return first_refusal(refuse_other_scales(case), refuse_short_blocks(mask), refuse_blind_rows(mask))


class VideoSparse(Kernel):
    name = "vsa"
    about = "FastVideo's block-sparse attention, ThunderKittens (Hopper): uniform blocks of 64"
    needs = "fastvideo-kernel==0.3.2"
    modules = ("fastvideo_kernel",)
    tested = "H200"
    capability = (9, 0)
    layout = "HLD"
    gives_lse = False  # the library's own scaling of it stays inside
    backward = "autograd"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        if case.deterministic and case.backward:
            return No("has a backward that adds up in no fixed order")
        return _supports(mask, case)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return _ThunderKittens(mask, case)


class VideoSparseTriton(Kernel):
    name = "vsa_triton"
    about = "FastVideo's block-sparse attention, Triton: uniform blocks of 64"
    needs = "fastvideo-kernel==0.3.2"
    modules = ("fastvideo_kernel", "triton")
    # the library rounds the scaled keys to bf16 before its backward, so that scores of 100 are off by some hundredths
    tested = "H200: forward; its backward fails the check where scores are large"
    layout = "HLD"

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        return _supports(mask, case)

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        assert isinstance(mask, BlockMask)
        return _Triton(mask, case)


def _batched(*tensors_LHD: torch.Tensor) -> list[torch.Tensor]:
    """Returns tensors as [1, H, L, D], in that order in memory."""
    return [tensor.transpose(0, 1).contiguous().unsqueeze(0) for tensor in tensors_LHD]


class _Lists:
    """The library's lists of blocks and the sizes of key blocks, which are all full."""

    def __init__(self, mask: BlockMask, case: Case) -> None:
        import torch

        from longca.kernels.block_lists import index_lists, kept_of_query_heads

        kept = kept_of_query_heads(mask, case)[None]
        self.key_count, self.key_index = index_lists(kept)
        self.row_count, self.row_index = index_lists(kept.transpose(-1, -2).contiguous())
        self.sizes = torch.full((kept.shape[-1],), SIZE, dtype=torch.int32, device=case.device)


class _ThunderKittens(AutogradAttention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        self.lists = _Lists(mask, case)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, None]:
        from fastvideo_kernel.block_sparse_attn import block_sparse_attn_sm90

        lists = self.lists
        out, _ = block_sparse_attn_sm90(*_batched(q_LHD, k_LHD, v_LHD), lists.key_index, lists.key_count, lists.sizes)
        return out[0].transpose(0, 1), None


class _Triton(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        self.lists = _Lists(mask, case)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        from fastvideo_kernel.triton_kernels.block_sparse_attn_triton import triton_block_sparse_attn_forward

        lists = self.lists
        out, lse_log2 = triton_block_sparse_attn_forward(*_batched(q_LHD, k_LHD, v_LHD), lists.key_index, lists.key_count, lists.sizes)
        return out[0].transpose(0, 1), lse_log2[0] * math.log(2)

    def backward(self, dout_LHD: Tensor, q_LHD: Tensor, k_LHD: Tensor, v_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor | None) -> Gradients:
        from fastvideo_kernel.triton_kernels.block_sparse_attn_triton import triton_block_sparse_attn_backward

        assert lse_HL is not None
        tensors = _batched(dout_LHD, q_LHD, k_LHD, v_LHD, out_LHD)
        lists = self.lists
        by_row, by_key = (lists.key_index, lists.key_count), (lists.row_index, lists.row_count)
        lse_log2 = (lse_HL / math.log(2)).unsqueeze(0)
        grads = triton_block_sparse_attn_backward(*tensors, lse_log2, *by_row, *by_key, lists.sizes)
        dq, dk, dv = (grad[0].transpose(0, 1) for grad in grads)
        return dq, dk, dv
