"""Block patterns that queries and keys select: q and k of LongCA's own inputs, or tensors of a user.

The means of blocks are computed on a CPU from the CPU's random numbers, whatever device is measured, so that a pattern is the same
everywhere; kernels are then measured on the same numbers (`Case.numbers`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longca import masks
from longca.errors import BadInput, unknown
from longca.kernels.base import Case
from longca.masks import BLOCK_PATTERNS, SOURCES, AnyMask, BlockMask
from longca.masks.bands import Ints
from longca.masks.selection import QUANTUM, Floats, Means
from longca.text import refuse_heads

if TYPE_CHECKING:
    import torch

    from longca.kernels.inputs import Which

FRAMEWORK = True

PIECE = 1024  # tokens at a time
NUMBERS = "cpu"  # the device whose generator makes the q and k that select


class Heads(NamedTuple):
    """The shape of a token; q and k of a seed depend on it."""

    q: int
    kv: int
    size: int


def numbers_of(source: str) -> str:
    """Returns the `Case.numbers` with which a pattern of that source is measured."""
    return "" if source == "random" else NUMBERS


def build(name: str, seqlen: int, source: str, shape: Heads, *, seed: int = 0, **options: Any) -> AnyMask:
    """Returns any mask by name. Only block patterns use source and shape; torch is needed where q and k select the blocks."""
    if source not in SOURCES:
        raise unknown("source of block patterns", source, list(SOURCES))
    if source == "random" or not masks.has_blocks(name):
        return masks.build(name, seqlen, seed=seed, **options)
    given = {key: value for key, value in options.items() if value is not None}
    mask = masks.find(name)
    if not isinstance(mask, masks.Expression):
        return from_seed(name, seqlen, source, seed, shape, **given)

    def selected(pattern: masks.BlockPattern, length: int, *, seed: int, **params: float) -> BlockMask:
        return from_seed(pattern.name, length, source, seed, shape, **params)

    return mask.build(seqlen, selected, seed=seed, **given)


def from_seed(name: str, seqlen: int, source: str, seed: int, shape: Heads, **params: float) -> BlockMask:
    """Returns the pattern that the rule `source` selects by the q and k of that seed."""

    def means(row_edges: Ints, col_edges: Ints) -> Means:
        return _means_of_seed(seqlen, seed, shape, row_edges.tobytes(), col_edges.tobytes())

    return BLOCK_PATTERNS[name].selected(seqlen, source, means, seed=seed, **{"heads": shape.kv, **params})


def from_tensors(q_LHD: torch.Tensor, k_LHD: torch.Tensor, name: str, source: str, seed: int = 0, **params: float) -> BlockMask:
    """Returns the pattern that the rule `source` selects by these queries and keys; the seed cuts variable blocks."""
    if len(q_LHD) != len(k_LHD):
        raise BadInput(f"the source {source} is causal: it needs as many queries as keys, not {len(q_LHD)} and {len(k_LHD)}.")
    if name not in BLOCK_PATTERNS:
        raise unknown("block pattern", name, list(BLOCK_PATTERNS))
    refuse_heads(q_LHD.shape[1], k_LHD.shape[1])

    def means(row_edges: Ints, col_edges: Ints) -> Means:
        return Means(*(block_means(_pieces(x), edges) for x, edges in ((q_LHD, row_edges), (k_LHD, col_edges))))

    return BLOCK_PATTERNS[name].selected(len(q_LHD), source, means, seed=seed, **{"heads": k_LHD.shape[1], **params})


def block_means(pieces: Iterator[torch.Tensor], edges: Ints) -> Floats:
    """Returns the means of blocks [heads, blocks, head size], in multiples of QUANTUM, of consecutive pieces [tokens, heads, head size]."""
    import torch

    sums: torch.Tensor | None = None
    place = 0
    for piece in pieces:
        if sums is None:
            sums = torch.zeros(len(edges) - 1, piece[0].numel(), dtype=torch.float64)
        end = place + len(piece)
        first, last = int(np.searchsorted(edges, place, side="right")) - 1, int(np.searchsorted(edges, end, side="left"))
        block = np.searchsorted(edges, np.arange(place, end), side="right") - 1 - first
        member = torch.from_numpy(np.arange(last - first)[:, None] == block[None, :]).double()
        sums[first:last] += member @ piece.flatten(1).double().cpu()
        heads, place = piece.shape[1], end
    assert sums is not None
    mean = sums.numpy() / np.diff(edges)[:, None]
    return np.ascontiguousarray(np.rint(mean / QUANTUM).reshape(len(mean), heads, -1).transpose(1, 0, 2))


def _pieces(x_LHD: torch.Tensor) -> Iterator[torch.Tensor]:
    return iter(x_LHD.split(PIECE))


@lru_cache(maxsize=1)  # patterns of several ratios come one after the other and share the means, which take longest
def _means_of_seed(seqlen: int, seed: int, shape: Heads, row_edges: bytes, col_edges: bytes) -> Means:
    from longca.kernels.inputs import length_of, tokens

    case = Case(seqlen, seqlen, shape.q, shape.kv, shape.size, shape.size, "fp32", "cpu", numbers=NUMBERS)

    def made(which: Which) -> Iterator[torch.Tensor]:
        length = length_of(which, case)
        return (tokens(which, case, [(start, min(start + PIECE, length))], seed) for start in range(0, length, PIECE))

    return Means(block_means(made("q"), np.frombuffer(row_edges, np.int64)), block_means(made("k"), np.frombuffer(col_edges, np.int64)))
