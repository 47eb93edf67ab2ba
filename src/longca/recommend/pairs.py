"""The forward of one kernel with the backward of another, as the kernel `best` combines them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import product
from statistics import median

from longca.kernels.base import Case, Kernel
from longca.kernels.choice.candidates import candidates
from longca.masks import AnyMask
from longca.results.ranking import Entry, together


def fastest_pair(
    forwards: Iterable[Entry], backwards: Iterable[Entry], digests: Collection[str], mask: AnyMask, case: Case
) -> tuple[Entry, Entry] | None:
    """Returns the forward and the backward that together are the fastest on masks with these digests, of which `mask` is an example; None
    where one kernel has both.

    As kernels are, pairs are ranked by the median of their speeds: in a sum of times, one mask with long documents would decide. Both
    kernels have the same memory order: otherwise `best` copies tensors between them, and the sum of their times lacks that.
    """
    timed = [[entry for entry in own if not entry.out and entry.figures.keys() >= set(digests)] for own in (forwards, backwards)]
    measured = {entry.line for own in timed for entry in own}
    able = candidates(mask, case, available=lambda kernel: kernel.label in measured)
    first, second = _timed_kernels(able.forward, timed[0]), _timed_kernels(able.backward, timed[1])
    ways = [(ahead, back) for (one, ahead), (other, back) in product(first, second) if one.layout == other.layout]
    if not ways:
        return None
    forward, backward = max(ways, key=lambda way: median(figure.tflops for figure in joined(way[0], way[1], digests).figures.values()))
    return (forward, backward) if forward.line != backward.line else None


def _timed_kernels(kernels: Iterable[Kernel], timed: Sequence[Entry]) -> list[tuple[Kernel, Entry]]:
    entries = {entry.line: entry for entry in timed}
    return [(kernel, entries[kernel.label]) for kernel in kernels if kernel.label in entries]


def joined(forward: Entry, backward: Entry, digests: Iterable[str]) -> Entry:
    """Returns the two as one entry."""
    figures = {digest: together([forward.figures[digest], backward.figures[digest]]) for digest in digests}
    return Entry(f"{forward.line} + {backward.line}", figures)
