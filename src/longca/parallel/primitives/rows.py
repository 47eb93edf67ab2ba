"""Picking rows of [L, H, D] tensors into a given memory order, in one copy."""

from __future__ import annotations

import torch

from longca.kernels.base import Layout
from longca.kernels.inputs import in_layout


def take_rows(x_LHD: torch.Tensor, index: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """x[index] in the given order; without an index all rows, copied only where the order changes."""
    if index is None:
        return in_layout(x_LHD, layout)
    if layout == "LHD":
        return x_LHD.index_select(0, index)
    return x_LHD.transpose(0, 1).index_select(1, index).transpose(0, 1)
