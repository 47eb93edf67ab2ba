"""Small pictures of masks for the page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from longca import masks
from longca.errors import LongcaError
from longca.masks import AnyMask, Mask
from longca.masks.draw import shades
from longca.results.naming import Row
from longca.results.record import MaskEntry, Masks, Record

PICTURE = 64  # cells in each direction
SHADES = "0123456789abcdef"
MOST_BLOCK_TOKENS = 1 << 17  # a larger block pattern takes too long to build again for a picture


class Pictures:
    """Pictures of the masks of a page. A mask that several settings have is drawn once."""

    def __init__(self, entries: Masks) -> None:
        self.drawn = list[tuple[str, dict[str, Any]]]()
        self._entries = {digest: entry for (digest, _), entry in entries.items()}  # the same under any name
        self._numbers = dict[tuple[str, str], int]()

    def numbers(self, rows: Iterable[Row]) -> dict[str, int]:
        """By the name of a mask the number of the picture of the longest one in these rows."""
        found = {}
        for name, (record, entry) in _longest(rows, self._entries).items():
            if (name, record.built.digest) not in self._numbers:
                self._numbers[name, record.built.digest] = len(self.drawn)
                self.drawn.append((name, _picture(record, entry)))
            found[name] = self._numbers[name, record.built.digest]
        return found


def _longest(rows: Iterable[Row], shown: Mapping[str, MaskEntry]) -> dict[str, tuple[Record, MaskEntry]]:
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        first.setdefault((row.problem, row.record.built.digest), row)
    longest: dict[str, tuple[Record, MaskEntry]] = {}
    for row in first.values():
        entry = shown.get(row.record.built.digest)
        if entry is not None and (row.problem not in longest or entry.seqlen_k > longest[row.problem][1].seqlen_k):
            longest[row.problem] = row.record, entry
    return longest


def _picture(record: Record, entry: MaskEntry) -> dict[str, Any]:
    """Length, seed, density, parameters, and rows of shades, one hexadecimal digit per cell (None where it cannot be built again)."""
    patterns = record.built.params.get("heads", 1) if masks.has_blocks(record.problem.mask) else 1
    density = entry.area / (entry.seqlen_q * entry.seqlen_k * patterns) if patterns else None
    params = ", ".join(f"{name}={value}" for name, value in record.built.params.items())
    mask = _rebuilt(record, entry)
    drawn = None if mask is None else _shades(mask)
    return {"seqlen": entry.seqlen_k, "seed": record.problem.seed, "density": density, "params": params, "shades": drawn}


def _rebuilt(record: Record, entry: MaskEntry) -> AnyMask | None:
    """Bands from the journal, random blocks from their seed. Blocks that q and k selected would need all of q and k again."""
    try:
        if entry.bands is not None:
            return Mask.of(entry.seqlen_q, entry.seqlen_k, entry.bands)
        if entry.seqlen_k > MOST_BLOCK_TOKENS or record.problem.source != "random":
            return None
        params: dict[str, Any] = record.built.params
        return masks.build(record.problem.mask, entry.seqlen_k, seed=record.problem.seed, **params).take_heads([0])
    except (LongcaError, TypeError, KeyError, ValueError, OverflowError):  # a mask of a plugin, or parameters that no mask has
        return None


def _shades(mask: AnyMask) -> list[str]:
    picture = shades(mask, PICTURE, PICTURE)[0]
    levels = np.ceil(picture * (len(SHADES) - 1)).astype(int)  # the faintest part stays visible
    return ["".join(map(SHADES.__getitem__, row)) for row in levels.tolist()]
