"""Packers: from a length distribution to the document lengths of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from random import Random

from longca.errors import BadInput, unknown
from longca.lengths.distributions import Distribution, Sampler, default_for, named
from longca.text import format_size
from longca.text import short as shortened

MOST_TOKENS = 1 << 32  # for which lengths are drawn: some 10 million documents
PACKS = 20  # `chunked` draws this many packs at once, and cuts and shuffles across them


def draw(seqlen: int, seed: int = 0, distribution: Distribution | None = None) -> list[int]:
    """Draws lengths until the sequence is full; the last document is cut."""
    _check(seqlen)
    return _fill(Sampler(distribution or default_for(seqlen), Random(seed)), seqlen)


def mixed(seqlen: int, seed: int = 0, distribution: Distribution | None = None) -> list[int]:
    """Fills two fifths of the tokens as `draw` does, the rest with documents of 8K to 30K tokens; all are shuffled."""
    _check(seqlen)
    rng = Random(seed)
    drawn = int(0.4 * seqlen)
    lengths = _fill(Sampler(distribution or default_for(seqlen), rng), drawn)
    lengths += _fill(lambda: rng.randint(8192, 30720), seqlen - drawn)
    rng.shuffle(lengths)
    return lengths


def chunked(seqlen: int, seed: int = 0, distribution: Distribution | None = None) -> list[int]:
    """Cuts documents to a quarter of the sequence and packs them without gaps; the seed is the number of the pack.

    Packs 0 to 19 come from one drawing, 20 to 39 from the next.
    """
    _check(seqlen)
    rng = Random(seed // PACKS)
    quarter = max(1, seqlen // 4)
    pieces: list[int] = []
    for length in _fill(Sampler(distribution or named("chatqa2"), rng), PACKS * seqlen):
        pieces += [quarter] * (length // quarter) + [length % quarter] * (length % quarter > 0)
    rng.shuffle(pieces)
    start, end = seed % PACKS * seqlen, (seed % PACKS + 1) * seqlen
    pack, position = [], 0
    for length in pieces:
        inside = min(position + length, end) - max(position, start)
        if inside > 0:
            pack.append(inside)
        position += length
    return pack


def short(seqlen: int, seed: int = 0, distribution: Distribution | None = None) -> list[int]:
    """Draws documents of a twelfth to a quarter of the sequence, and cuts the last one: four or more. Takes no distribution."""
    _check(seqlen)
    if distribution is not None:
        raise BadInput("the packing short draws its own lengths; leave out the distribution.")
    rng = Random(f"documents/{seed}")
    return _fill(lambda: rng.randint(max(1, seqlen // 12), max(1, seqlen // 4)), seqlen)


PACKERS: dict[str, Callable[[int, int, Distribution | None], list[int]]] = {
    "draw": draw,
    "mixed": mixed,
    "chunked": chunked,
    "short": short,
}


def pack(seqlen: int, seed: int = 0, packing: str = "draw", distribution: Distribution | None = None) -> list[int]:
    """Document lengths that sum to `seqlen`, by the name of the packer."""
    if packing not in PACKERS:
        raise unknown("packing", packing, list(PACKERS))
    if seqlen > MOST_TOKENS:
        raise BadInput(
            f"document lengths are drawn for at most {format_size(MOST_TOKENS)} tokens, not {seqlen}; give fewer, or your own lengths."
        )
    return PACKERS[packing](seqlen, seed, distribution)


def fit(lengths: Sequence[int], seqlen: int) -> list[int]:
    """A user's own lengths, cut where the sequence ends; too few are refused."""
    _check(seqlen)
    try:
        whole = all(index(length) == length for length in lengths)
    except TypeError:
        whole = False
    if not whole:
        raise BadInput(f"document lengths must be a list of whole numbers, such as [353, 7839], not {shortened(repr(lengths), 60)}.")
    if any(length < 1 for length in lengths):
        raise BadInput(f"document lengths must be 1 or more, not {min(lengths)}.")
    if sum(lengths) < seqlen:
        raise BadInput(f"the documents hold {sum(lengths)} tokens, fewer than the sequence length {seqlen}; give more of them.")
    given = iter(lengths)
    return _fill(lambda: next(given), seqlen)


def cut_note(lengths: Sequence[int], seqlens: Iterable[int]) -> list[str]:
    """A sentence, without its end, where a user's own lengths are cut; none where they fill every sequence exactly."""
    held = sum(lengths)
    shorter = sorted({seqlen for seqlen in seqlens if seqlen < held})
    if not shorter:
        return []
    return [f"the given documents hold {held} tokens, and what is beyond the sequence ({', '.join(map(str, shorter))} tokens) is cut off"]


def _check(seqlen: int) -> None:
    if seqlen < 1:
        raise BadInput(f"the sequence length must be 1 or more, not {seqlen}.")


def _fill(next_length: Callable[[], int], seqlen: int) -> list[int]:
    lengths: list[int] = []
    left = seqlen
    while left > 0:
        lengths.append(min(next_length(), left))
        left -= lengths[-1]
    return lengths
