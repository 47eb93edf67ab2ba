"""FlashInfer's attention on variable blocks, one pattern per KV head; forward only. It lists every visible key of every row block."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from longca.kernels.base import Answer, Attention, Case, Kernel, No, Preference, refuse_shapes
from longca.kernels.block_lists import first_refusal, refuse_blind_rows, refuse_pattern
from longca.masks import AnyMask, BlockMask

if TYPE_CHECKING:
    import torch

WORKSPACE = 128 << 20  # bytes, what its documentation recommends


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
        assert isinstance(mask, BlockMask)
        return _VariableBlocks(mask, case)


def _refuse_long_lists(mask: BlockMask, case: Case) -> No | None:
    """Returns a refusal where the lists are longer than the library can count, in 32 bits."""
    keys_seen = np.count_nonzero(mask.kept, axis=(0, 1)) @ np.diff(mask.col_edges)
    listed = int(keys_seen) * (case.heads_kv // mask.heads)
    if listed < 1 << 31:
        return None
    return No(f"lists every key of every row block, {listed:,} here, and counts to {(1 << 31) - 1:,}")


class _VariableBlocks(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
        import torch
        from flashinfer.sparse import VariableBlockSparseAttentionWrapper

        from longca.kernels.inputs import DTYPES
        from longca.kernels.lower import upload

        self.wrapper: Any = VariableBlockSparseAttentionWrapper(torch.empty(WORKSPACE, dtype=torch.uint8, device=case.device))
        kept = upload(mask.kept, case.device).expand(case.heads_kv, -1, -1).contiguous()
        sizes = [upload(np.diff(edges).astype(np.int32), case.device) for edges in (mask.row_edges, mask.col_edges)]
        row_sizes, key_sizes = (size.expand(case.heads_kv, -1).contiguous() for size in sizes)
        self.wrapper.plan(
            kept,
            row_sizes,
            key_sizes,
            case.heads_q,
            case.heads_kv,
            case.head_dim,
            sm_scale=case.softmax_scale,
            q_data_type=DTYPES[case.dtype],
        )

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = (x.transpose(0, 1).contiguous() for x in (q_LHD, k_LHD, v_LHD))
        out, lse_log2 = self.wrapper.run(q, k, v, return_lse=True)
        return out.transpose(0, 1), lse_log2 * math.log(2)
