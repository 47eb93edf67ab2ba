"""Masks: static and dynamic patterns by name, their areas, cuts, tiles and encodings.

>>> from longca import masks
>>> masks.causal(4).dense().astype(int).tolist()
[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
"""

from longca.masks.blocks import BlockMask
from longca.masks.by_name import (
    AnyMask,
    block_names,
    blocks_of,
    build,
    dense_of,
    expand,
    files_in,
    find,
    has_blocks,
    more_names,
    names,
    own_names,
    own_params,
)
from longca.masks.converters import from_column_intervals, from_cu_seqlens, from_dense, from_position_ids, from_slices
from longca.masks.encodings import ColumnIntervals, Slices, Varlen
from longca.masks.expression import Expression
from longca.masks.files import MaskFile, read_mask, write_mask
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
from longca.masks.own import load_plugin, mask
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
from longca.masks.random_blocks import BLOCK_PATTERNS, BlockPattern, uniform_block, variable_block
from longca.masks.selection import SOURCES
from longca.masks.tiles import TileLists, Tiles

__all__ = [
    "BLOCK_PATTERNS",
    "PATTERNS",
    "SOURCES",
    "AnyMask",
    "BlockMask",
    "BlockPattern",
    "ColumnIntervals",
    "Expression",
    "Mask",
    "MaskFile",
    "Pattern",
    "Slices",
    "TileLists",
    "Tiles",
    "Varlen",
    "block_causal_document",
    "block_names",
    "blocks_of",
    "build",
    "causal",
    "causal_blockwise",
    "causal_document",
    "chunked_causal",
    "dense_of",
    "dilated_window_causal",
    "expand",
    "files_in",
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
    "has_blocks",
    "load_plugin",
    "mask",
    "more_names",
    "names",
    "own_names",
    "own_params",
    "prefix_lm_causal",
    "prefix_lm_document",
    "prefix_lm_pairs",
    "read_mask",
    "share_question",
    "shared_questions",
    "sink_window_causal",
    "sliding_window",
    "sliding_window_causal",
    "sliding_window_causal_document",
    "uniform_block",
    "variable_block",
    "write_mask",
]
