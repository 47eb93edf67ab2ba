"""Picking rows of [L, H, D] tensors into a given memory order, in one copy."""

from __future__ import annotations

import torch

from longca.kernels.base import Layout
from longca.kernels.inputs import in_layout
from longca.parallel.comm.base import Comm, size_of


def take_rows(comm: Comm, x_LHD: torch.Tensor, index: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """x[index] in the given order; without an index all rows, copied only where the order changes."""
    if index is None:
        taken = in_layout(x_LHD, layout)
    elif layout == "LHD":
        taken = x_LHD.index_select(0, index)
    else:
        taken = x_LHD.transpose(0, 1).index_select(1, index).transpose(0, 1)
    if index is not None or taken.stride() != x_LHD.stride():
        comm.note_work("copy", 2 * size_of(taken))
    return taken
