"""Explains a wrong tensor to the author of a kernel: how many tokens, which of them, which heads.

Nothing here is computed for a kernel that is right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from longca.bench.check.pieces import in_pieces
from longca.bench.check.sampled_rows import Ints

MOST_HEADS, MOST_RANGES = 6, 3  # that are named one by one
TILES = (256, 128, 64, 32, 16)
LEAST_REPEATS = 3  # wrong tokens at the same place of their tiles, of which a rule is made


@dataclass(frozen=True)
class Tokens:
    """How the rows of a tensor are called."""

    numbers: torch.Tensor | None = None  # in the sequence; None: they are all of it
    seen: Ints | None = None  # what each sees, as in a probe; None: they are keys
    sampled: bool = False

    def number(self, row: int) -> int:
        return row if self.numbers is None else int(self.numbers[row])

    def of(self, count: int, total: int) -> str:
        share = 100 * count / total
        percent = "all" if count == total else f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"
        return f"{count} of {total} {'sampled ' if self.sampled else ''}tokens ({percent})"

    def sees(self, row: int) -> str:
        """What the row of a band mask sees; nothing is said of blocks, which are many."""
        if self.seen is None or not len(self.seen):
            return ""
        intervals = [f"[{first}, {last})" for first, last in self.seen[:, :, row].tolist() if last > first]
        return f" sees the keys {' and '.join(intervals)}" if intervals else " sees no key"


def group_tokens(group: int, count: int, size: int, tokens: Tokens) -> str:
    """The first and last of `count` tokens that are in this group of `size` tokens, in words."""
    return f"{tokens.number(group * size)} to {tokens.number(min(count, (group + 1) * size) - 1)}"


def spread(wrong_TH: torch.Tensor, tokens: Tokens) -> str:
    """How many tokens are wrong, the first of them, and in which heads if not in all; empty where none is."""
    per_token, per_head = wrong_TH.any(1), wrong_TH.any(0)
    if not per_token.any():
        return ""
    first, which = int(per_token.int().argmax()), _which(per_token.cpu().numpy(), tokens)
    seen = f"; token {tokens.number(first)}{seen}" if (seen := tokens.sees(first)) else ""
    words = f"wrong in {tokens.of(int(per_token.sum()), len(per_token))}{which}"
    return words + ("" if per_head.all() else f", only in {_heads(per_head)}") + seen


def _which(wrong: NDArray[np.bool_], tokens: Tokens) -> str:
    """The tokens that are wrong: ": tokens 16-31", ": the last of every 128 tokens", or the first and the last of many ranges."""
    if wrong.all() and len(wrong) > 1:
        return ""
    numbers = np.arange(len(wrong)) if tokens.numbers is None else tokens.numbers.cpu().numpy()
    starts = np.flatnonzero(wrong & ~np.r_[False, wrong[:-1]])
    ends = np.flatnonzero(wrong & ~np.r_[wrong[1:], False])
    if rule := _rule(wrong, numbers):
        return f": {rule}"
    if len(starts) > MOST_RANGES:
        first, last = (f"{numbers[starts[at]]}-{numbers[ends[at]]}" for at in (0, -1))
        return f", in {len(starts)} ranges, the first {first}, the last {last}"
    ranges = [
        f"{numbers[first]}-{numbers[last]}" if last > first else str(numbers[first]) for first, last in zip(starts, ends, strict=True)
    ]
    return f": token{'' if ranges == [str(numbers[starts[0]])] else 's'} {' and '.join(ranges)}"


def _rule(wrong: NDArray[np.bool_], numbers: Ints) -> str:
    """The place in every tile at which just these tokens are, where they are all of those at this place from the first one on."""
    first = int(numbers[wrong][0])
    for tile in TILES:
        place = first % tile
        expected = (numbers % tile == place) & (numbers >= first)
        if int(wrong.sum()) >= LEAST_REPEATS and bool((expected == wrong).all()):
            ordinal = {0: "the first", tile - 1: "the last"}.get(place, f"number {place} (from 0)")
            return f"{ordinal} of every {tile} tokens" + (f" from token {first} on" if first >= tile else "")
    return ""


def _heads(wrong: torch.Tensor) -> str:
    numbers, total = wrong.nonzero().flatten().tolist(), len(wrong)
    if len(numbers) > MOST_HEADS:
        return f"{len(numbers)} of {total} heads, first {numbers[0]}"
    return f"head{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))} of {total}"


def non_finite(tensor_LHD: torch.Tensor, tokens: Tokens) -> str:
    """Where it holds what is no number; empty where it does not."""
    (wrong,) = in_pieces(lambda x: (~x.isfinite().all(2),), tensor_LHD)
    if not wrong.any():
        return ""
    row, head = divmod(int(wrong.int().argmax()), wrong.shape[1])
    count = tokens.of(int(wrong.any(1).sum()), len(wrong))
    return f"{gave(tensor_LHD[row, head])} at token {tokens.number(row)}, head {head}, and NaN or infinity in {count}"


def unexpected_gradient(dq_LHD: torch.Tensor, voiced: torch.Tensor, tokens: Tokens) -> str:
    """Where rows have a gradient though they were given none; empty where none has. NaN is one too."""
    (loud,) = in_pieces(lambda x: ((x != 0).any(2).any(1),), dq_LHD)
    loud[voiced] = False
    if not loud.any():
        return ""
    return f"{int(loud.sum())} of {len(loud) - len(voiced)} such rows, first in token {tokens.number(int(loud.int().argmax()))}"


def gave(values: torch.Tensor) -> str:
    """What stands where a finite number should."""
    if values.isnan().any():
        return "NaN"
    if values.isinf().any():
        return "infinity" if values.max() == math.inf else "-infinity"
    return f"{float(values.abs().max()):.3g}"
