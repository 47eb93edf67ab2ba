"""From rules of visibility to masks: causal or not, inside documents or chunks, within a window."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from longca.masks import Mask
from longca.masks.bands import bands

LONGEST_DENSE = 8192  # tokens whose pairs are looked at one by one: 64 MiB of bools


@dataclass(frozen=True, eq=False)
class Rule:
    """What a query sees: all of these hold."""

    causal: bool = True
    window: int | None = None  # keys, its own included
    documents: torch.Tensor | None = None  # [batch, tokens]: tokens with another number are hidden
    chunk: int | None = None  # tokens of other chunks are hidden
    chunk_start: torch.Tensor | None = None  # [batch]: where the first chunk begins

    def both(self, other: Rule) -> Rule:
        """Returns the rule that holds where both do; of two windows the narrower one."""
        windows = [window for window in (self.window, other.window) if window is not None]
        return replace(
            self,
            causal=self.causal or other.causal,
            window=min(windows, default=None),
            documents=other.documents if self.documents is None else self.documents,
            chunk=other.chunk if self.chunk is None else self.chunk,
            chunk_start=other.chunk_start if self.chunk_start is None else self.chunk_start,
        )

    def ids(self, entry: int, total: int) -> torch.Tensor:
        """Returns a number per token of an entry; tokens with different numbers do not see each other."""
        ids = torch.zeros(total, dtype=torch.int64)
        if self.documents is not None:
            own = self.documents[min(entry, len(self.documents) - 1)]
            ids[: len(own)] = own[:total]
        if self.chunk is not None:
            start = 0 if self.chunk_start is None else int(self.chunk_start.flatten()[min(entry, self.chunk_start.numel() - 1)])
            ids = ids * (total + 2) + (torch.arange(total) - start).div(self.chunk, rounding_mode="floor") + 1
        return ids

    def visible(self, entry: int, total: int, padding: torch.Tensor | None) -> torch.Tensor:
        """Returns every pair of an entry as a bool [queries, keys]."""
        row, key = torch.arange(total)[:, None], torch.arange(total)
        ids = self.ids(entry, total)
        seen = ids[:, None] == ids
        seen &= (key <= row) if self.causal else torch.ones_like(seen)
        if self.window is not None:
            seen &= key > row - self.window
        return seen if padding is None else seen & padding[entry]


def segments(rule: Rule, entry: int, total: int, there: torch.Tensor | None) -> list[tuple[int, int]] | None:
    """Returns the ranges of tokens that see one another; tokens of padding are in none. None where padding has tokens on both sides."""
    ids = rule.ids(entry, total)
    first, last = 0, total
    if there is not None:
        tokens = there.nonzero().flatten()
        first, last = (int(tokens[0]), int(tokens[-1]) + 1) if len(tokens) else (0, 0)
        if last - first != len(tokens):
            return None
    cuts = (ids[first + 1 : last] != ids[first : last - 1]).nonzero().flatten() + first + 1
    edges = [first, *cuts.tolist(), last]
    return [(start, end) for start, end in itertools.pairwise(edges) if end > start]


def segments_mask(edges: Sequence[tuple[int, int]], total: int, rule: Rule) -> Mask:
    """Returns the mask in which the tokens of each range see one another, causally and within the window where the rule says so."""
    start, end = (np.array([edge[side] for edge in edges], np.int64) for side in (0, 1))
    if not rule.causal:
        return Mask.of(total, total, bands((start, end, start, 0, end, 0)))
    if rule.window is None:
        return Mask.of(total, total, bands((start, end, start, 0, start + 1, 1)))
    wide = np.minimum(start + rule.window, end)  # rows up to here see the range from its start on
    moving = wide < end
    narrow = (wide[moving], end[moving], start[moving] + 1, 1, wide[moving] + 1, 1)
    return Mask.of(total, total, bands((start, wide, start, 0, start + 1, 1), narrow))
