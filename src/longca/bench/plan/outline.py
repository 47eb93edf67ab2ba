"""Masks of cells without their blocks: what a dry run counts and what shards are dealt by, in milliseconds instead of minutes.

A block pattern of 128K tokens and 64 heads has 268 million blocks. How many of them are kept follows from its parameters; only which
ones needs all of their scores.
"""

from __future__ import annotations

from functools import lru_cache

from longca import masks
from longca.bench.plan.cell import fingerprint
from longca.bench.plan.cells import mask_entry, refuse_too_long
from longca.results.problem import Problem
from longca.results.record import MaskEntry


def mask_outline(problem: Problem) -> MaskEntry:
    """The mask of a problem. Of a block pattern the area is the expected one, and the digest is that of how it is made: two seeds whose
    rule happens to select the same blocks count as two."""
    return _mask_outline(problem.every_pass)


@lru_cache(maxsize=4096)
def _mask_outline(problem: Problem) -> MaskEntry:
    if problem.mask not in masks.block_names():  # with bands on top of blocks, what is left of these is not known beforehand
        return mask_entry(problem)
    refuse_too_long(problem)
    params = {**dict(problem.params), "heads": problem.patterns}
    rows, columns, count, known = masks.BLOCK_PATTERNS[problem.mask].frame(problem.seqlen, problem.seed, params)
    random = problem.source == "random"
    draws_nothing = count == len(columns) - 1  # every block is kept
    made_from = None if draws_nothing else (problem.seed, problem.source, None if random else problem.token_shape)
    part = count / (len(columns) - 1)
    area = part if random else part - part**2 / 2  # a causal mask lies on top: a row sees its own part of what comes before it
    return MaskEntry(
        digest=fingerprint(rows.tolist(), columns.tolist(), count, known["heads"], made_from),
        mask=problem.mask,
        seed=problem.seed,
        params=known,
        source=problem.source,
        seqlen_q=problem.seqlen,
        seqlen_k=problem.seqlen,
        area=round(known["heads"] * problem.seqlen**2 * area),
        bands=None,
    )
