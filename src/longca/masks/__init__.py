"""Masks: static and dynamic patterns by name, their areas, cuts, tiles and encodings.

>>> from longca import masks
>>> masks.causal(4).dense().astype(int).tolist()
[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longca.errors import unknown
from longca.lengths import Distribution
from longca.masks.blocks import BlockMask
from longca.masks.converters import from_column_intervals, from_cu_seqlens, from_dense, from_position_ids, from_slices
from longca.masks.encodings import ColumnIntervals, Slices, Varlen
from longca.masks.flex import from_block_mask, from_mask_mod
from longca.masks.mask import Mask
from longca.masks.more_patterns import (
    chunked_causal,
    dilated_window_causal,
    prefix_lm_pairs,
    shared_questions,
    sink_window_causal,
    sliding_window_causal_document,
)
from longca.masks.pattern import MORE, PATTERNS, Pattern
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
from longca.masks.random_blocks import BLOCK_PATTERNS, BlockPattern, uniform_block, variable_block
from longca.masks.selection import SOURCES
from longca.masks.tiles import TileLists, Tiles
from longca.text import parse_size

AnyMask = Mask | BlockMask


def names() -> list[str]:
    """The paper's twelve static masks."""
    return [name for name, pattern in PATTERNS.items() if pattern.group != MORE]


def more_names() -> list[str]:
    """The static masks beyond the paper."""
    return [name for name, pattern in PATTERNS.items() if pattern.group == MORE]


def block_names() -> list[str]:
    """The dynamic masks."""
    return list(BLOCK_PATTERNS)


def find(name: str) -> Pattern | BlockPattern:
    """The pattern of that name."""
    if name not in PATTERNS and name not in BLOCK_PATTERNS:
        raise unknown("mask", name, [*PATTERNS, *BLOCK_PATTERNS])
    return PATTERNS[name] if name in PATTERNS else BLOCK_PATTERNS[name]


def build(
    name: str,
    seqlen: int | str,
    *,
    seed: int = 0,
    documents: Sequence[int] | None = None,
    distribution: Distribution | str | None = None,
    packing: str | None = None,
    **params: Any,
) -> AnyMask:
    """A mask by its name. The length is a number, or a text such as "32K"."""
    length = parse_size(seqlen) if isinstance(seqlen, str) else seqlen
    return find(name)(length, seed=seed, documents=documents, distribution=distribution, packing=packing, **params)


def dense_of(source: str) -> str:
    """The mask that block patterns of this source are a part of."""
    return "full" if source == "random" else "causal"


def own_params(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings that this mask has as parameters."""
    return {key: value for key, value in settings.items() if key in find(name).defaults}


__all__ = [
    "BLOCK_PATTERNS",
    "PATTERNS",
    "SOURCES",
    "AnyMask",
    "BlockMask",
    "BlockPattern",
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
    "chunked_causal",
    "dense_of",
    "dilated_window_causal",
    "find",
    "from_block_mask",
    "from_column_intervals",
    "from_cu_seqlens",
    "from_dense",
    "from_mask_mod",
    "from_position_ids",
    "from_slices",
    "full",
    "full_document",
    "global_sliding_window",
    "more_names",
    "names",
    "own_params",
    "prefix_lm_causal",
    "prefix_lm_document",
    "prefix_lm_pairs",
    "share_question",
    "shared_questions",
    "sink_window_causal",
    "sliding_window",
    "sliding_window_causal",
    "sliding_window_causal_document",
    "uniform_block",
    "variable_block",
]
