"""Picking rows of [L, H, D] tensors into a given memory order, in one copy."""

from __future__ import annotations

import torch

from longca.kernels.base import Layout
from longca.kernels.inputs import in_layout

Rows = torch.Tensor | slice | None  # which rows: numbers, a run, or all


def take_rows(x_LHD: torch.Tensor, index: Rows, layout: Layout) -> torch.Tensor:
    """x[index] in the given order; a run of rows, or all, are copied only where the order changes."""
    if index is None or isinstance(index, slice):
        return in_layout(x_LHD if index is None else x_LHD[index], layout)
    if layout == "LHD":
        return x_LHD.index_select(0, index)
    return x_LHD.transpose(0, 1).index_select(1, index).transpose(0, 1)


def add_rows(into_LHD: torch.Tensor, index: Rows, part_LHD: torch.Tensor) -> None:
    """into[index] += part, in the type of `into`. A run of rows is added without a copy in that type."""
    if isinstance(index, torch.Tensor):
        into_LHD.index_add_(0, index, part_LHD.to(into_LHD.dtype))
    else:
        whole = into_LHD if index is None else into_LHD[index]
        whole += part_LHD
