"""Attention sinks: one learned logit per query head that joins the softmax's denominator and has no value.

A sink changes only the weight of a row: with out and lse of the visible keys, lse becomes log(exp(lse) + exp(sink)) and out shrinks by
exp(old lse - new lse). So sinks are added once, after everything else, also after the merge of a ring's steps. A backward that gets the
changed out and lse is right as it is; `gradient` gives that of the sinks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def add(out_LHD: Tensor, lse_HL: Tensor, sinks_H: Tensor) -> tuple[Tensor, Tensor]:
    """Returns out and lse with the sinks, as new tensors; torch can differentiate them. Rows without visible keys get lse = sink."""
    import torch

    total_HL = torch.logaddexp(lse_HL, sinks_H[:, None].to(lse_HL.dtype))
    weight_LH1 = (lse_HL - total_HL).exp().mT[..., None]
    return (out_LHD * weight_LH1).to(out_LHD.dtype), total_HL


def gradient(dout_LHD: Tensor, out_LHD: Tensor, lse_HL: Tensor, sinks_H: Tensor) -> Tensor:
    """Returns dsinks [H] from out and lse that have the sinks."""
    delta_HL = (dout_LHD.to(lse_HL.dtype) * out_LHD).sum(-1).mT
    return -((sinks_H[:, None] - lse_HL).exp() * delta_HL).sum(1).to(sinks_H.dtype)
