"""The forward of one kernel with the backward of another, as the kernel `best` combines them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

from longca.kernels.base import Kernel
from longca.kernels.choice.candidates import candidates
from longca.recommend.question import Question
from longca.recommend.unmeasured import case_of, sample_mask
from longca.results.ranking import Entry, figure


def fastest_pair(
    question: Question, device: str, forwards: Iterable[Entry], backwards: Iterable[Entry], masks: Iterable[str]
) -> tuple[Entry, Entry] | None:
    """Returns the forward and the backward that together take the least time on these masks; None where one kernel has both.

    Both kernels have the same memory order: otherwise `best` copies tensors between them, and the sum of their times lacks that.
    """
    digests = frozenset(masks)
    timed = [[entry for entry in own if not entry.out and digests <= entry.figures.keys()] for own in (forwards, backwards)]
    measured = {entry.line for own in timed for entry in own}
    sample = sample_mask(question)
    able = candidates(sample, case_of(question, sample, device), available=lambda kernel: kernel.label in measured)
    first, second = _timed_kernels(able.forward, timed[0]), _timed_kernels(able.backward, timed[1])
    ways = [(ahead, back) for (one, ahead), (other, back) in product(first, second) if one.layout == other.layout]
    if not ways:
        return None
    forward, backward = min(ways, key=lambda way: sum(entry.figures[digest].ms for entry in way for digest in digests))
    return (forward, backward) if forward.line != backward.line else None


def _timed_kernels(kernels: Iterable[Kernel], timed: Sequence[Entry]) -> list[tuple[Kernel, Entry]]:
    entries = {entry.line: entry for entry in timed}
    return [(kernel, entries[kernel.label]) for kernel in kernels if kernel.label in entries]


def joined(forward: Entry, backward: Entry, masks: Iterable[str]) -> Entry:
    """Returns the two as one entry: their times add up."""
    figures = {digest: figure([*forward.figures[digest].records, *backward.figures[digest].records]) for digest in masks}
    return Entry(f"{forward.line} + {backward.line}", figures)
