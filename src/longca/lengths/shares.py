"""What share of all documents, and of all tokens, lies in documents of 1, 2 to 3, 4 to 7, 8 to 15 ... tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from longca.lengths.distributions import Distribution


class Shares(NamedTuple):
    """Entry n is of documents with 2^n to 2^(n+1) - 1 tokens; both lists sum to 1."""

    documents: list[float]
    tokens: list[float]


def of_distribution(distribution: Distribution) -> Shares:
    """Returns the expected shares: all lengths of a bucket are equally likely, and a length of 0 counts as 1."""
    pieces = []
    for low, high, weight in zip((0, *distribution.uppers[:-1]), distribution.uppers, distribution.weights, strict=True):
        each = weight / (high - low + 1)
        if low == 0:
            pieces.append((1, 1, each))
        pieces += [(max(low, 1 << n), min(high, (2 << n) - 1), each) for n in range(max(low, 1).bit_length() - 1, high.bit_length())]
    return _shares(pieces)


def of_lengths(lengths: Sequence[int]) -> Shares:
    """Returns the shares of a user's own documents."""
    return _shares((length, length, 1.0) for length in lengths)


def _shares(pieces: Iterable[tuple[int, int, float]]) -> Shares:
    """Returns the shares of ranges (first length, last length, weight of each length), of which none crosses a power of two."""
    known = list(pieces)
    documents, tokens = ([0.0] * max(last.bit_length() for _, last, _ in known) for _ in range(2))
    for first, last, each in known:
        count, place = last - first + 1, first.bit_length() - 1
        documents[place] += each * count
        tokens[place] += each * count * (first + last) / 2
    return Shares(*([value / sum(values) for value in values] for values in (documents, tokens)))
