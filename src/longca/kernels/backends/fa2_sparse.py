"""Block-Sparse-Attention (FlashAttention-2 with blocks of 128, one pattern per query head)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Yes, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.kernels.shared import older_than
from longca.masks import BlockMask

if TYPE_CHECKING:
    from longca.masks import AnyMask

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
        from longca.kernels.backends._fa2_sparse import BlockSparseAttention

        assert isinstance(mask, BlockMask)
        return BlockSparseAttention(mask, case)
