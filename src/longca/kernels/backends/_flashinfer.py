"""FlashInfer's wrapper for variable blocks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from flashinfer.sparse import VariableBlockSparseAttentionWrapper

from longca.kernels.base import Attention, Case
from longca.kernels.inputs import DTYPES
from longca.kernels.lower import upload
from longca.masks import BlockMask

WORKSPACE = 128 << 20  # bytes, what its documentation recommends


class VariableBlocks(Attention):
    def __init__(self, mask: BlockMask, case: Case) -> None:
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
