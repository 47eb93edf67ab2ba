"""Lowering of block patterns, for all block-sparse adapters: refusals of blocks that a library does not take, and lists of blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from longca.kernels.base import Answer, Case, No, Yes

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask, BlockMask, Mask


def first_refusal(*refusals: No | None, otherwise: Answer | None = None) -> Answer:
    """Returns the first refusal, or `otherwise`, or Yes (a No is false, so that `or` would skip it)."""
    return next((refusal for refusal in refusals if refusal is not None), otherwise or Yes())


def block_size(mask: BlockMask) -> int | None:
    """Returns the size of all row and key blocks, the last of which may be shorter; None where sizes differ."""
    size = int(max(mask.row_edges[1], mask.col_edges[1]))
    for edges in (mask.row_edges, mask.col_edges):
        if not np.array_equal(edges, np.append(np.arange(0, edges[-1], size), edges[-1])):
            return None
    return size


OnTop = Literal["nothing", "causal", "any"]


def refuse_pattern(mask: AnyMask, case: Case, sizes: tuple[int, ...] = (), on_top: OnTop = "nothing") -> No | None:
    """Returns why a kernel that takes uniform blocks of these sizes (none given: any blocks), with this kind of mask on top, refuses a
    mask; None where it takes it."""
    from longca.masks import BlockMask

    if not isinstance(mask, BlockMask):
        return No("takes block patterns, not masks made of bands")
    if mask.heads not in (1, case.heads_kv):
        return No(f"needs one pattern, or one per KV head ({case.heads_kv}), not {mask.heads}")
    if sizes and (size := block_size(mask)) not in sizes:
        return No(f"takes blocks of {' or '.join(map(str, sizes))} tokens, not {f'of {size}' if size else 'of different sizes'}")
    if mask.band is not None and on_top == "nothing":
        return No("shows whole blocks, and this pattern has a mask on top that hides a part of some")
    if mask.band is not None and on_top == "causal" and not is_causal(mask.band):
        return No("takes a causal mask on top of blocks, and no other")
    return None


def is_causal(mask: Mask) -> bool:
    """Whether a mask is the causal mask of as many queries as keys."""
    from longca.masks import causal

    return mask.seqlen_q == mask.seqlen_k and mask == causal(mask.seqlen_q)


def refuse_short_blocks(mask: BlockMask) -> No | None:
    """Returns a refusal where the last block is shorter than the others."""
    size = block_size(mask) or 1
    for length in (mask.seqlen_q, mask.seqlen_k):
        if length % size:
            return No(f"needs lengths that are multiples of its blocks of {size}, not {length}")
    return None


def refuse_blind_rows(mask: BlockMask) -> No | None:
    """Returns a refusal where a row of blocks keeps none."""
    return None if mask.kept.any(axis=2).all() else No("needs rows that all see a key")


def index_lists(kept: torch.Tensor, width: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (count [..., rows], index [..., rows, width]) int32: the kept blocks of each row in order, then zeros; `width` is at least
    the longest list, or all blocks. Nothing is read back from the device."""
    import torch

    blocks = kept.shape[-1]
    width = blocks if width is None else width
    place = torch.where(kept, kept.cumsum(-1) - 1, width)  # blocks that are not kept go into an extra place, which is cut off
    index = torch.zeros(*kept.shape[:-1], width + 1, dtype=torch.int32, device=kept.device)
    index.scatter_(-1, place, torch.arange(blocks, dtype=torch.int32, device=kept.device).expand(kept.shape))
    return kept.sum(-1, dtype=torch.int32), index[..., :width].contiguous()


def tile_lists(mask: BlockMask, device: str, tile: tuple[int, int], *, of_keys: bool = False, wide: bool = False) -> list[torch.Tensor]:
    """Returns (partial count, partial index, full count, full index) per pattern and tile of rows, or of keys; made on the device.

    It is for blocks of whole tiles, the last of which may be shorter: that tile is partial, and so is every tile of a block that a band
    on top cuts; the caller masks these. Lists are as wide as the longest may be, or with `wide` as the number of tiles.
    """
    from longca.kernels.lower import upload

    edges, lengths = (mask.row_edges, mask.col_edges), (mask.seqlen_q, mask.seqlen_k)
    rows, keys = (
        upload(np.searchsorted(edge, np.arange(0, length, size), side="right") - 1, device)
        for edge, length, size in zip(edges, lengths, tile, strict=True)
    )
    kept, partial = upload(mask.kept, device)[:, rows][:, :, keys], upload(mask.cut_blocks, device)[rows][:, keys]
    partial[-1] |= mask.seqlen_q % tile[0] > 0
    partial[:, -1] |= mask.seqlen_k % tile[1] > 0
    listed = 0 if of_keys else 1
    tiles_a_block = -(-int(np.diff(edges[listed]).max(initial=1)) // tile[listed])
    width = None if wide else max(1, tiles_a_block * int(np.count_nonzero(mask.kept, axis=1 + listed).max(initial=0)))
    both = (kept & partial, kept & ~partial)
    return [tensor for part in both for tensor in index_lists(part.transpose(1, 2) if of_keys else part, width)]


def kept_of_query_heads(mask: BlockMask, case: Case) -> torch.Tensor:
    """Returns kept[query head, row block, key block] on the device; the heads of a group share a pattern."""
    from longca.kernels.lower import upload

    kept = upload(mask.kept, case.device)
    return kept.repeat_interleave(case.heads_q // mask.heads, 0)
