"""Small pictures of masks for the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from longca.masks import AnyMask
from longca.masks.draw import shades
from longca.results.naming import Row
from longca.results.record import MaskEntry, Masks, Record

PICTURE = 64  # cells in each direction
SHADES = "0123456789abcdef"
MOST_BLOCK_TOKENS = 1 << 17  # a larger block pattern takes too long to build again for a picture


def pictures(rows: Iterable[Row], entries: Masks) -> dict[str, dict[str, Any]]:
    """By the name of a mask the picture of the longest one in these rows."""
    known = {digest: entry for (digest, _), entry in entries.items()}  # the same under any name
    longest: dict[str, tuple[Record, MaskEntry]] = {}
    for row in rows:
        entry = known.get(row.record.built.digest)
        if entry is not None and (row.mask_name not in longest or entry.seqlen_k > longest[row.mask_name][1].seqlen_k):
            longest[row.mask_name] = row.record, entry
    return {name: _picture(record, entry) for name, (record, entry) in longest.items()}


def _picture(record: Record, entry: MaskEntry) -> dict[str, Any]:
    """Length, seed, density, parameters, and rows of shades, one hexadecimal digit per cell (None where it cannot be built again)."""
    patterns = record.built.params.get("heads", 1) if record.problem.is_pattern else 1
    density = entry.area / (entry.seqlen_q * entry.seqlen_k * patterns) if patterns else None
    params = ", ".join(f"{name}={value}" for name, value in record.built.params.items())
    mask = None if entry.bands is None and entry.seqlen_k > MOST_BLOCK_TOKENS else entry.rebuilt()
    drawn = None if mask is None else _shades(mask)
    return {"seqlen": entry.seqlen_k, "seed": record.problem.seed, "density": density, "params": params, "shades": drawn}


def _shades(mask: AnyMask) -> list[str]:
    picture = shades(mask.take_heads([0]), PICTURE, PICTURE)[0]
    levels = np.ceil(picture * (len(SHADES) - 1)).astype(int)  # the faintest part stays visible
    return ["".join(map(SHADES.__getitem__, row)) for row in levels.tolist()]
