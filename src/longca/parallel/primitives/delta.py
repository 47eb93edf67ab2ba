"""delta: the product of out and dout of each row, which is all that a backward needs of out. It travels in place of out.

Kernels take an out and make delta of it themselves, so the receiver makes one that has this delta.
"""

from __future__ import annotations

import torch


def delta_of(out_LHD: torch.Tensor, dout_LHD: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """delta [H, L]."""
    return (out_LHD.to(dtype) * dout_LHD.to(dtype)).sum(-1).T


def out_of(dout_LHD: torch.Tensor, delta_HL: torch.Tensor) -> torch.Tensor:
    """The shortest out with this delta: a multiple of dout, 0 where dout is. It is no longer than the real one, so it rounds no worse."""
    dout = dout_LHD.to(delta_HL.dtype)
    largest = dout.abs().amax(-1, keepdim=True).clamp_min(torch.finfo(dout.dtype).tiny)  # the squares of tiny numbers would be 0
    unit = dout / largest
    share_LH1 = delta_HL.T.unsqueeze(-1) / largest / unit.square().sum(-1, keepdim=True)
    return (unit * share_LH1.nan_to_num(0.0, 0.0, 0.0)).to(dout_LHD.dtype)
