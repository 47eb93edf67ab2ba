"""Classes of attention calls: one choice of a kernel serves all calls of a class.

A packed mask is new at every training step, so a choice is made for the kind of mask and not for its digest: what it looks like, how dense
it is and how long, the latter two in powers of two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from longca.errors import Refused
from longca.kernels.base import Case
from longca.kernels.shared import intervals_per_row
from longca.masks import AnyMask, BlockMask
from longca.text import format_dims, format_heads

MANY = 3  # intervals per row from which on masks are of one class


class ShapeClass(NamedTuple):
    """What a choice depends on, beside the device and the candidates. `backward` False: a forward alone."""

    mask: str
    seqlen_q: int
    seqlen_k: int
    heads: str
    head_dim: str
    dtype: str
    backward: bool
    softcap: bool = False
    sinks: bool = False
    deterministic: bool = False


def shape_class(mask: AnyMask, case: Case) -> ShapeClass:
    """Returns the class of one attention call."""
    lengths = length_class(case.seqlen_q), length_class(case.seqlen_k)
    shape = format_heads(vars(case)), format_dims(vars(case)), case.dtype
    return ShapeClass(mask_class(mask), *lengths, *shape, case.backward, case.softcap > 0, case.sinks, case.deterministic)


def length_class(length: int) -> int:
    """Returns the nearest power of two, on a logarithmic scale; 0 for 0."""
    return 1 << round(math.log2(length)) if length else 0


def mask_class(mask: AnyMask) -> str:
    """Returns the kind of a mask and its density as a power of two, such as "causal documents, 1/32"."""
    if mask.area == 0:
        return "empty"
    share = round(-math.log2(mask.density))
    return _kind(mask) + (f", 1/{1 << share}" if share > 0 else "")


def _kind(mask: AnyMask) -> str:
    if isinstance(mask, BlockMask):
        sizes = {*np.diff(mask.row_edges)[:-1].tolist(), *np.diff(mask.col_edges)[:-1].tolist()}
        blocks = f"blocks of {sizes.pop()}" if len(sizes) == 1 else "blocks of several sizes"
        return f"{blocks}{' per head' * (mask.heads > 1)}{' under bands' * (mask.band is not None)}"
    try:
        varlen = mask.varlen()
    except Refused:
        intervals = intervals_per_row(mask)
        return f"bands, {intervals} per row" if intervals < MANY else f"bands, {MANY} or more per row"
    limits = {(-1, -1): "full", (-1, 0): "causal"}
    visible = limits.get((varlen.left, varlen.right)) or ("causal window" if varlen.right == 0 else "window")
    return visible if len(varlen.cu_q) <= 2 else f"{visible} documents"
