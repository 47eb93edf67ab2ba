"""Computing on the tokens of a tensor piece by piece: a tensor may fill a good part of a device, and no temporary should do the same."""

from __future__ import annotations

from collections.abc import Callable

import torch

PIECE = 1 << 25  # elements: 128 MiB in fp32


def in_pieces(compute: Callable[..., tuple[torch.Tensor, ...]], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """What `compute` returns for all tokens, where it is given some tokens of these tensors at a time: the results one after the other."""
    parts = [compute(*(x[piece] for x in tensors)) for piece in _pieces(tensors[0])]
    return tuple(torch.cat(results) for results in zip(*parts, strict=True))


def _pieces(x: torch.Tensor) -> list[slice]:
    """One piece at least, also of a tensor without tokens."""
    step = max(1, PIECE // max(1, x.shape[1:].numel()))
    return [slice(first, first + step) for first in range(0, max(1, len(x)), step)]
