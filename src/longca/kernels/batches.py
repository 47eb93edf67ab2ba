"""A batch as one call: its entries become documents of one sequence, each under its own mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from longca.errors import BadInput, Refused
from longca.masks import AnyMask, BlockMask, Mask
from longca.masks.bands import Bands


def masks_of(given: AnyMask | Sequence[AnyMask], batch: int | None) -> tuple[AnyMask, ...]:
    """Returns one mask per batch entry, from one for all or a list of them; `batch` None: tensors without a batch have one mask."""
    several = isinstance(given, list | tuple)
    masks = tuple(given) if isinstance(given, list | tuple) else (given,)
    for mask in masks:
        if not isinstance(mask, Mask | BlockMask):
            name, hint = repr(mask), ""
            if isinstance(mask, str):
                hint = "; longca.masks.build(text, length) makes one of a text"
            elif hasattr(mask, "shape"):
                name, hint = f"{type(mask).__name__} {list(mask.shape)}", "; longca.masks.from_dense makes one of a bool matrix"
            raise BadInput(f"the mask must be one of longca.masks, such as longca.masks.causal(8192), not {name}{hint}.")
    if batch is None:
        if several:
            raise BadInput(f"a list of {len(masks)} masks is for a batch [B, L, H, D]; give one mask for [L, H, D].")
        return masks
    if several and len(masks) != batch:
        raise BadInput(f"there are {len(masks)} masks for a batch of {batch}; give one for all entries, or one per entry.")
    return masks if several else masks * batch


@lru_cache(maxsize=64)
def joined(masks: tuple[AnyMask, ...]) -> AnyMask:
    """Returns the mask of all entries one after the other: theirs on the diagonal, nothing elsewhere."""
    if len(masks) == 1:
        return masks[0]
    parts = [mask for mask in masks if isinstance(mask, Mask)]
    if len(parts) < len(masks):
        raise Refused("a batch takes masks made of bands, not block patterns; call it once per entry.")
    rows, keys = ([0, *accumulate(lengths)] for lengths in ([m.seqlen_q for m in parts], [m.seqlen_k for m in parts]))
    moved = [_moved(mask.bands, row, key) for mask, row, key in zip(parts, rows, keys, strict=False)]
    documents = [length for mask in parts for length in mask.documents or (mask.seqlen_q,)]
    square = all(mask.seqlen_q == mask.seqlen_k for mask in parts)
    bands = Bands(*(np.concatenate(columns) for columns in zip(*moved, strict=True)))
    return Mask.of(rows[-1], keys[-1], bands, name=parts[0].name, documents=documents if square else None)


def _moved(bands: Bands, row: int, key: int) -> Bands:
    return Bands(bands.q0 + row, bands.q1 + row, bands.lo + key, bands.a, bands.hi + key, bands.b)
