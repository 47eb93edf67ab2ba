"""Block patterns in FlexAttention: uniform blocks are its own blocks, variable ones are looked up token by token."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask as FlexBlocks

from longca.kernels.backends.flex._settings import ChangedSettings
from longca.kernels.base import Case
from longca.kernels.block_lists import block_size, tile_lists
from longca.masks import BlockMask

TILE = 128  # of the lists for variable blocks
LEAST = 64  # blocks below it are narrower than FlexAttention's own tiles, and go the way of variable ones
FORWARD_TILE = {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 64, "fwd_num_warps": 4, "fwd_num_stages": 3}


@cache
def tiles_of_64() -> ChangedSettings:
    """Returns a context in which kernels are compiled, by any thread, with a backward whose tiles fit into blocks of 64.

    The one configuration that torch takes without tuning does not fit, and no option of the call changes that; tuning takes minutes per
    length. Autograd may compile the backward in a thread of its own, so the choice is one for the process.
    """
    from torch._inductor.choices import InductorChoices
    from torch._inductor.template_heuristics.triton import FlexBwDConfig

    def configurations(self: Any, head_dim: int, dtype: torch.dtype, device_type: str | None = "cuda") -> list[Any]:
        return [FlexBwDConfig(64, 64, 64, 64, 3 if head_dim <= 128 else 2, 4)]

    return ChangedSettings({InductorChoices: {"get_flex_attention_bwd_configs": configurations}})


def own_block(mask: BlockMask) -> int:
    """Returns the block size that FlexAttention uses for this mask."""
    size = block_size(mask)
    return size if size is not None and size % LEAST == 0 else TILE


def block_mask(mask: BlockMask, case: Case) -> FlexBlocks:
    """Returns FlexAttention's mask, with lists per query head: it shares them between heads only where there is one pattern for all.
    Lists are as wide as there are tiles, so that all patterns of one length share one compiled kernel."""
    size = own_block(mask)
    if size != block_size(mask):  # its blocks end inside tiles
        tiled: FlexBlocks = mask.block_mask(case.device, TILE, case.heads_q)
        return tiled
    lists = tile_lists(mask, case.device, (size, size), wide=True)
    partial_count, partial_index, full_count, full_index = (x.repeat_interleave(case.heads_q // mask.heads, 0) for x in lists)
    return FlexBlocks.from_kv_blocks(
        partial_count[None],
        partial_index[None],
        full_count[None],
        full_index[None],
        BLOCK_SIZE=size,
        mask_mod=mask.mask_mod(case.device, case.heads_q),
        seq_lengths=(mask.seqlen_q, mask.seqlen_k),
    )
