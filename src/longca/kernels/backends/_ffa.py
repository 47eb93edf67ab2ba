"""Flex-flash-attention on the slices of a mask."""

from __future__ import annotations

import numpy as np
import torch
from magi_attention.api import flex_flash_attn_func
from numpy.typing import NDArray

from longca.kernels.base import AutogradAttention, Case
from longca.kernels.lower import upload
from longca.kernels.shared import BlindRows
from longca.masks import Mask


class SliceAttention(AutogradAttention):
    def __init__(self, mask: Mask, case: Case) -> None:
        slices = mask.slices()
        self.slices = tuple(upload(part, case.device) for part in slices)
        self.options = {
            "softmax_scale": case.softmax_scale,
            "deterministic": case.deterministic,
            # where no query is in two slices, no results have to be added up: the library is faster when told
            "disable_fwd_atomic_reduction": not overlap(slices.q_ranges),
        }
        self.blind = BlindRows(mask, case.device)

    def forward(self, q_LHD: torch.Tensor, k_LHD: torch.Tensor, v_LHD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out_LHD, statistics = flex_flash_attn_func(q_LHD, k_LHD, v_LHD, *self.slices, **self.options)
        lse_LH: torch.Tensor = getattr(statistics, "lse", statistics)  # releases before 1.1 return the tensor itself
        return self.blind.in_graph(out_LHD, lse_LH.detach().t())


def overlap(ranges: NDArray[np.int32]) -> bool:
    """Whether two of the half-open ranges share a token."""
    ordered = ranges[np.argsort(ranges[:, 0], kind="stable")]
    return bool((np.maximum.accumulate(ordered[:, 1])[:-1] > ordered[1:, 0]).any())
