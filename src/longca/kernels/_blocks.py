"""What the adapters of block-sparse kernels share: which blocks a library takes, and its lists of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from longca.kernels.base import Answer, Case, No, Yes

if TYPE_CHECKING:
    import torch

    from longca.masks import AnyMask, BlockMask, Mask


def first_refusal(*refusals: No | None, otherwise: Answer | None = None) -> Answer:
    """The first reason to refuse; a No is false, so that `or` would pass it over."""
    return next((refusal for refusal in refusals if refusal is not None), otherwise or Yes())


def block_size(mask: BlockMask) -> int | None:
    """The one size of all row and key blocks, the last of which may be shorter; None where sizes differ."""
    size = int(max(mask.row_edges[1], mask.col_edges[1]))
    for edges in (mask.row_edges, mask.col_edges):
        if not np.array_equal(edges, np.append(np.arange(0, edges[-1], size), edges[-1])):
            return None
    return size


OnTop = Literal["nothing", "causal", "any"]


def refuse_pattern(mask: AnyMask, case: Case, sizes: tuple[int, ...] = (), on_top: OnTop = "nothing") -> No | None:
    """Why a kernel that takes uniform blocks of these sizes (none given: any blocks), with this kind of mask on top, cannot take it."""
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
    from longca.masks import causal

    return mask.seqlen_q == mask.seqlen_k and mask == causal(mask.seqlen_q)


def refuse_short_blocks(mask: BlockMask) -> No | None:
    size = block_size(mask) or 1
    for length in (mask.seqlen_q, mask.seqlen_k):
        if length % size:
            return No(f"needs lengths that are multiples of its blocks of {size}, not {length}")
    return None


def refuse_blind_rows(mask: BlockMask) -> No | None:
    return None if mask.kept.any(axis=2).all() else No("needs rows that all see something")


def index_lists(kept: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(count [..., rows], index [..., rows, blocks]) int32: the kept blocks of each row first, in order."""
    import torch

    index = kept.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
    return kept.sum(-1, dtype=torch.int32), index.int()


def kept_of_query_heads(mask: BlockMask, case: Case) -> torch.Tensor:
    """kept[query head, row block, key block] on the device; the heads of a group see the same."""
    from longca.kernels.lower import upload

    kept = upload(mask.kept, case.device)
    return kept.repeat_interleave(case.heads_q // mask.heads, 0)
