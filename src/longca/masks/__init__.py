"""Masks: fourteen patterns, and what can be done with them.

>>> from longca import masks
>>> masks.causal(4).dense().astype(int).tolist()
[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
"""

from collections.abc import Sequence
from typing import Any

from longca.errors import unknown
from longca.lengths import Distribution
from longca.masks.blocks import BlockMask
from longca.masks.encodings import ColumnIntervals, Slices, Varlen
from longca.masks.mask import Mask
from longca.masks.pattern import PATTERNS, Pattern
from longca.masks.patterns import (
    block_causal_document,
    causal,
    causal_blockwise,
    causal_document,
    full,
    full_document,
    global_sliding_window,
    prefix_lm_causal,
    prefix_lm_document,
    share_question,
    sliding_window,
    sliding_window_causal,
)
from longca.masks.random_blocks import BLOCK_PATTERNS, uniform_block, variable_block
from longca.masks.tiles import TileLists, Tiles

AnyMask = Mask | BlockMask


def names() -> list[str]:
    """The twelve static masks."""
    return list(PATTERNS)


def block_names() -> list[str]:
    """The two dynamic masks."""
    return list(BLOCK_PATTERNS)


def build(
    name: str,
    seqlen: int,
    *,
    seed: int = 0,
    documents: Sequence[int] | None = None,
    distribution: Distribution | str | None = None,
    packing: str = "draw",
    **params: Any,
) -> AnyMask:
    """Any of the fourteen masks, by name."""
    if name in BLOCK_PATTERNS:
        return BLOCK_PATTERNS[name](seqlen, seed=seed, documents=documents, distribution=distribution, **params)
    if name not in PATTERNS:
        raise unknown("mask", name, names() + block_names())
    return PATTERNS[name](seqlen, seed=seed, documents=documents, distribution=distribution, packing=packing, **params)


__all__ = [
    "BLOCK_PATTERNS",
    "PATTERNS",
    "AnyMask",
    "BlockMask",
    "ColumnIntervals",
    "Mask",
    "Pattern",
    "Slices",
    "TileLists",
    "Tiles",
    "Varlen",
    "block_causal_document",
    "block_names",
    "build",
    "causal",
    "causal_blockwise",
    "causal_document",
    "full",
    "full_document",
    "global_sliding_window",
    "names",
    "prefix_lm_causal",
    "prefix_lm_document",
    "share_question",
    "sliding_window",
    "sliding_window_causal",
    "uniform_block",
    "variable_block",
]
