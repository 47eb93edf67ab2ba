"""The two dynamic masks: every query block keeps the key blocks with the highest random scores, one pattern per KV head.

Scores are a hash of (seed, head, row block, key block) in whole-number arithmetic, so that numpy and torch, CPU and GPU agree.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from time import perf_counter
from typing import Any

import numpy as np

from longca.errors import BadInput, unknown
from longca.masks.bands import Ints
from longca.masks.blocks import BlockMask
from longca.masks.pattern import at_least, check_params, check_seed, check_seqlen, without_documents
from longca.masks.patterns import causal
from longca.masks.selection import RULES, Means, select

LOW32 = 0xFFFFFFFF
MANY_BLOCKS = 1 << 22
MOST_HEADS = 1 << 16
COLUMN_BITS = 24  # a score is the hash, then the column: no two in a row are equal


def block_scores(seed: int, head: Any, row: Any, column: Any) -> Any:
    """Scores for whole arrays at once; numpy and torch int64 arrays give the same numbers."""
    state: Any = seed & LOW32
    for part in (head, row, column):
        state = state + part * 0x9E3779B1 + 0x7F4A7C15
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            state = state & LOW32
            state = (state ^ (state >> shift)) * factor  # overflow wraps in both libraries; only the low 32 bits are kept
        state = state & LOW32
        state = state ^ (state >> 16)
    return (state << COLUMN_BITS) | column


def top_blocks(seed: int, heads: int, rows: int, columns: int, count: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which blocks are kept, [heads, rows, columns]: in each row those with the `count` highest scores.

    Computed some rows at a time, to stay in the cache; large patterns on all cores, as numpy computes without Python's lock.
    """
    kept = np.zeros((heads, rows, columns), bool)
    column, step = np.arange(columns)[None, :], max(1, (1 << 18) // columns)

    def choose(head: int) -> None:
        for start in range(0, rows, step):
            row = np.arange(start, min(start + step, rows))[:, None]
            scores = block_scores(seed, head, row, column)
            least = np.partition(scores, columns - count, axis=1)[:, columns - count, None]
            np.greater_equal(scores, least, out=kept[head, start : start + step])

    if kept.size < MANY_BLOCKS:
        for head in range(heads):
            choose(head)
    else:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            list(threads.map(choose, range(heads)))
    return kept


def uniform_edges(seqlen: int, block: int) -> Ints:
    return np.append(np.arange(0, seqlen, block), seqlen)


def variable_edges(seqlen: int, average: int, least: int, rng: Random) -> Ints:
    """Edges of seqlen/average parts of random size, each at least `least` (at most `average`); a shorter sequence is one part."""
    parts = max(1, seqlen // average)
    least = min(least, seqlen)
    free = seqlen - parts * least
    cuts = np.sort([rng.randint(0, free) for _ in range(parts - 1)])
    return np.concatenate([[0], cuts + least * np.arange(1, parts), [seqlen]]).astype(np.int64)


@dataclass(frozen=True)
class BlockPattern:
    """A dynamic mask by name. Call it: `uniform_block(32768, heads=8, b=64, ratio=.2)`; `ratio` is the part kept.

    `top`: so many key blocks are kept for each row block, whatever the ratio.
    """

    name: str
    about: str
    defaults: dict[str, float]
    edges: Callable[[int, dict[str, float], Random], tuple[Ints, Ints]]
    group: str = "dynamic"
    has_documents: bool = False
    own_lengths: None = None

    def __call__(self, seqlen: int, *, seed: int = 0, **options: Any) -> BlockMask:
        rows, columns, count, known = self.frame(seqlen, seed, without_documents(self.name, options))
        kept = top_blocks(seed, int(known["heads"]), len(rows) - 1, len(columns) - 1, count)
        return BlockMask(rows, columns, kept, name=self.name, params=known, seed=seed, source="random")

    def selected(self, seqlen: int, source: str, means: Callable[[Ints, Ints], Means], *, seed: int = 0, **params: float) -> BlockMask:
        """The pattern that a rule selects, with a causal mask on top; `means` makes the means for the edges of rows and keys."""
        if source not in RULES:
            raise unknown("rule that selects blocks", source, list(RULES))
        rows, columns, count, known = self.frame(seqlen, seed, params, source)
        known_means, start = means(rows, columns), perf_counter()
        kept = select(source, known_means, rows, columns, count, int(known["heads"]))
        select_ms = round((perf_counter() - start) * 1e3, 3)
        mask = BlockMask(rows, columns, kept, band=causal(seqlen), name=self.name, params=known, seed=seed, source=source)
        mask.select_ms = select_ms
        return mask

    def frame(
        self, seqlen: int, seed: int, params: Mapping[str, float], source: str = "random"
    ) -> tuple[Ints, Ints, int, dict[str, float]]:
        """Edges of rows and keys, how many blocks a row keeps, and all parameters: what all patterns of these parameters share."""
        seqlen, seed = check_seqlen(seqlen), check_seed(seed)
        known = self.known(params, source)
        if not 0 < known.get("ratio", 1) <= 1:
            raise BadInput(f"{self.name}: ratio is the part of the blocks that is kept, above 0 and up to 1, not {known['ratio']}.")
        rows, columns = self.edges(seqlen, known, Random(f"{self.name}/{seed}"))
        return rows, columns, self.count(seqlen, len(columns) - 1, known), known

    def known(self, params: Mapping[str, float], source: str = "random") -> dict[str, float]:
        """All parameters, checked. `least` is at most `avg`: by default the smaller of 128 and avg. Of `top` and `ratio` the one that says
        how many blocks are kept."""
        self.check(params)
        usual = RULES[source].defaults if source in RULES else {}
        known = {**self.defaults, **{name: usual[name] for name in usual if name in self.defaults}, **params}
        known.pop("ratio" if known["top"] else "top")
        for name in known:
            if name != "ratio":
                at_least(self.name, name, known[name], 1, MOST_HEADS if name == "heads" else None)
        if "least" in known and known["least"] > known["avg"]:
            if "least" in params:
                raise BadInput(
                    f"{self.name}: blocks of at least {known['least']} are never {known['avg']} on average; lower least or raise avg."
                )
            known["least"] = known["avg"]
        return known

    def count(self, seqlen: int, columns: int, known: Mapping[str, float]) -> int:
        """How many of the key blocks each row block keeps: ratio * seqlen / b, or ratio * columns where sizes vary, rounded down.

        With `top`, that many. The ratio is taken as it is written (0.29 is 29/100), so that no rounding of floats drops a block.
        """
        if "top" in known:
            return min(int(known["top"]), columns)
        ratio = Fraction(str(float(known["ratio"])))
        blocks = Fraction(seqlen, int(known["b"])) if "b" in known and ratio < 1 else columns
        return min(max(1, int(ratio * blocks)), columns)

    def block_count(self, seqlen: int, params: Mapping[str, float]) -> int:
        """How many blocks the patterns of all heads have, kept or not; each is a byte, and one more while they are made."""
        known = self.known(params)
        per_side = -(-seqlen // max(1, int(known["b" if "b" in known else "avg"])))
        return int(known["heads"]) * per_side**2

    def check(self, params: Mapping[str, Any]) -> None:
        """Refuse parameters this mask does not have."""
        check_params(self.name, params, list(self.defaults))


def _uniform(seqlen: int, params: dict[str, float], rng: Random) -> tuple[Ints, Ints]:
    edges = uniform_edges(seqlen, min(int(params["b"]), seqlen))
    return edges, edges


def _variable(seqlen: int, params: dict[str, float], rng: Random) -> tuple[Ints, Ints]:
    average, least = int(params["avg"]), int(params["least"])
    return variable_edges(seqlen, average, least, rng), variable_edges(seqlen, average, least, rng)


uniform_block = BlockPattern(
    "uniform_block",
    "blocks of b x b tokens; each query block keeps the best of them",
    {"b": 64, "ratio": 0.5, "heads": 1, "top": 0},
    _uniform,
)
variable_block = BlockPattern(
    "variable_block", "blocks of random size, avg on average", {"avg": 256, "ratio": 0.5, "heads": 1, "least": 128, "top": 0}, _variable
)
BLOCK_PATTERNS = {pattern.name: pattern for pattern in (uniform_block, variable_block)}
