"""Masks of a user: one with parameters, one with documents."""

import longca
from longca import masks


@longca.mask
def stairs(seqlen: int, step: int = 16) -> masks.Mask:
    """blocks of step tokens see all blocks before and their own."""
    return masks.Mask.of(seqlen, seqlen, [(i, min(i + step, seqlen), 0, 0, min(i + step, seqlen), 0) for i in range(0, seqlen, step)])


@longca.mask(name="first_tokens")
def first(seqlen: int, documents: list[int], seed: int) -> masks.Mask:
    """the first token of every document, and its own key"""
    starts = [sum(documents[:place]) for place in range(len(documents))]
    heads = [(0, seqlen, start, 0, start + 1, 0) for start in starts]
    return masks.Mask.of(seqlen, seqlen, [*heads, (0, seqlen, 0, 1, 1, 1)], overlapping="unite")
