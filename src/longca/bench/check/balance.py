"""What holds for the gradients of any attention, whatever dout is.

The check knows dk and dv of a dout that is 0 in most rows. Timed calls have another one, of which it knows dq in some rows. Two sums tell
whether dk and dv belong to it too: without sinks the rows of the probabilities sum up to 1, so dv of all keys is dout of all rows that
see a key; and both <dk, k> over all keys and <dq, q> over all rows are the sum of all scores times their gradients.
"""

from __future__ import annotations

import numpy as np
import torch

from longca.bench.check.pieces import in_pieces
from longca.bench.check.sampled_rows import seen_keys
from longca.kernels.base import Case
from longca.kernels.inputs import DTYPES, Inputs
from longca.masks import AnyMask, BlockMask

STEPS, LEAST = 8.0, 1e-4  # times the rounding of the dtype, and at least: of the size of the summed terms


def unbalanced(mask: AnyMask, case: Case, inputs: Inputs, gradients: dict[str, torch.Tensor]) -> str:
    """What is wrong with dk or dv of these inputs, in words; empty where both sums agree."""
    share = max(LEAST, STEPS * torch.finfo(DTYPES[case.dtype]).eps / 4)
    dv, dv_squares = _sums(gradients["dv"], case)
    (dk_k, dk_sizes), (dq_q, dq_sizes) = (_products(gradients[name], x, case) for name, x in (("dk", inputs.k), ("dq", inputs.q)))
    problem = _worst("dk", "the sum of dk · k is not that of dq · q", share, dk_k, dq_q, dk_sizes + dq_sizes)
    if isinstance(mask, BlockMask) or case.sinks:  # a sink takes a part of each row, so its probabilities sum up to less
        return problem
    seen = seen_keys(mask, np.arange(mask.seqlen_q))
    dout, dout_squares = _sums(inputs.dout, case, torch.from_numpy((seen[:, 1] > seen[:, 0]).any(0)).to(inputs.dout.device))
    return problem or _worst("dv", "the sum of dv is not that of dout", share, dv, dout, dv_squares + dout_squares)


def _sums(x_LHD: torch.Tensor, case: Case, among: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of a tensor and of its squares, [KV heads, head size]: over tokens (those `among`) and the query heads of each KV head."""

    def of_piece(x: torch.Tensor, among: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        x = x if among is None else x * among[:, None, None]
        return x.sum(0, dtype=torch.float64)[None], x.square().sum(0, dtype=torch.float64)[None]

    given = [x_LHD] if among is None else [x_LHD, among]
    sums, squares = (x.sum(0).unflatten(0, (case.heads_kv, -1)).sum(1) for x in in_pieces(of_piece, *given))
    return sums, squares


def _products(x_LHD: torch.Tensor, y_LHD: torch.Tensor, case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of <x, y> and of |x|² |y|² over tokens and the query heads of each KV head, [KV heads]."""

    def of_piece(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = (z.to(torch.promote_types(z.dtype, torch.float32)) for z in (x, y))
        sizes = x.square().sum(-1, dtype=torch.float64) * y.square().sum(-1, dtype=torch.float64)
        return (x * y).sum((0, 2), dtype=torch.float64)[None], sizes.sum(0)[None]

    products, sizes = (x.sum(0).unflatten(0, (case.heads_kv, -1)).sum(1) for x in in_pieces(of_piece, x_LHD, y_LHD))
    return products, sizes


def _worst(name: str, words: str, share: float, left: torch.Tensor, right: torch.Tensor, squares: torch.Tensor) -> str:
    off, allowed = (left - right).abs(), share * squares.sqrt()
    ratio = (off / allowed.clamp_min(1e-30)).nan_to_num(nan=torch.inf)
    if not ratio.numel() or float(ratio.max()) <= 1:
        return ""
    place = int(ratio.argmax())
    head = place // (ratio.numel() // len(ratio))
    error, most = (float(x.flatten()[place]) for x in (off, allowed))
    return f"{name} is wrong: {words}, off by {error:.2g} in KV head {head}, allowed {most:.2g}"
