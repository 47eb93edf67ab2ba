"""FlashInfer's attention on variable blocks, one pattern per KV head; forward only. It lists every visible key of every row block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.masks import BlockMask

if TYPE_CHECKING:
    from longca.masks import AnyMask


class FlashInfer(Kernel):
    name = "flashinfer"
    about = "FlashInfer's VariableBlockSparseAttentionWrapper: uniform and variable blocks, forward"
    needs = "flashinfer-python==0.7.2.post1"
    modules = ("flashinfer",)
    layout = "HLD"
    backward = "none"
    tested = "H200"
    preference = Preference(cuda=57)

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        shapes = refuse_shapes(case, dtypes=("bf16", "fp16"), dims=(64, 128, 256), equal_dims=True)
        if not (answer := first_refusal(shapes, refuse_pattern(mask, case))):
            return answer
        assert isinstance(mask, BlockMask)
        return first_refusal(refuse_blind_rows(mask), _refuse_long_lists(mask, case))

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        from longca.kernels.backends._flashinfer import VariableBlocks

        assert isinstance(mask, BlockMask)
        return VariableBlocks(mask, case)


def _refuse_long_lists(mask: BlockMask, case: Case) -> No | None:
    """Returns a refusal where the lists are longer than the library can count, in 32 bits."""
    keys_seen = np.count_nonzero(mask.kept, axis=(0, 1)) @ np.diff(mask.col_edges)
    listed = int(keys_seen) * (case.heads_kv // mask.heads)
    if listed < 1 << 31:
        return None
    return No(f"lists every key of every row block, {listed:,} here, and counts to {(1 << 31) - 1:,}")
