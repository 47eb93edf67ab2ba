"""Blocks that queries select themselves: the rules of NSA, MoBA and MSA on the mean query and the mean key of each block.

All are causal: a row block chooses among the key blocks that it sees something of, and within a block the causal mask hides the rest.
Means are whole numbers (of `QUANTUM`), and so are the scores made of them: the order of a sum, or the library that computes it,
cannot change a choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.masks.bands import Ints

Floats = NDArray[np.float64]
QUANTUM = 2.0**-16  # of a mean; products of two, summed over a head of 256, stay below the 2^53 that floats hold exactly
SHARE = 2.0**40  # parts of a probability; summed over 4,096 heads they are still exact


class Means(NamedTuple):
    """Per head and block the mean query, and the mean key, in multiples of QUANTUM."""

    queries: Floats  # [query heads, row blocks, head size]
    keys: Floats  # [KV heads, key blocks, head size]


class Rule(NamedTuple):
    about: str
    scores: Callable[[Floats, Floats, NDArray[np.bool_]], Floats]  # of one KV head: [group, rows, D], [keys, D], visible -> [rows, keys]
    sinks: int  # first key blocks that every row block keeps
    before: int  # key blocks before its own that it keeps
    defaults: Mapping[str, int] = {}  # of parameters of a pattern that has them, in place of the pattern's own


def _gate(q_GBD: Floats, k_BD: Floats, visible: NDArray[np.bool_]) -> Floats:
    """MoBA and MSA: the product of the mean query with the mean key; query heads of a group choose together."""
    return np.asarray(q_GBD.sum(0) @ k_BD.T)


def _importance(q_GBD: Floats, k_BD: Floats, visible: NDArray[np.bool_]) -> Floats:
    """NSA: how much attention the compressed keys get, summed over the query heads of a group."""
    total = np.zeros(visible.shape)
    for q_BD in q_GBD:
        score = np.where(visible, q_BD @ k_BD.T * (QUANTUM**2 / np.sqrt(k_BD.shape[1])), -np.inf)
        weight = np.exp(score - score.max(1, keepdims=True))
        total += np.rint(weight / weight.sum(1, keepdims=True) * SHARE)
    return total


RULES = {
    "nsa": Rule("NSA: attention on mean keys; the first block, the own one and the one before it are kept", _importance, 1, 1),
    "moba": Rule("MoBA: product with mean keys; the own block is kept", _gate, 0, 0),
    "msa": Rule("MSA: product with mean keys; 16 blocks of 128, the own one is kept", _gate, 0, 0, {"b": 128, "top": 16}),
}
SOURCES = {"random": "uniform random scores", **{name: rule.about for name, rule in RULES.items()}}


def select(source: str, means: Means, row_edges: Ints, col_edges: Ints, count: int, patterns: int) -> NDArray[np.bool_]:
    """kept[pattern, row block, key block]: of the key blocks it sees, each row block keeps the `count` best.

    What a rule always keeps counts among them, and stays where `count` is smaller. Of equal scores the first block is taken.
    """
    rule, heads_kv = RULES[source], len(means.keys)
    if patterns not in (1, heads_kv):
        raise BadInput(f"the source {source} selects blocks for each of the {heads_kv} KV heads, or for all together: not for {patterns}.")
    visible, always = _visible(row_edges, col_edges), _always(rule, row_edges, col_edges)
    grouped = means.queries.reshape(heads_kv, -1, *means.queries.shape[1:])
    scores: Any = (rule.scores(q_GBD, k_BD, visible) for q_GBD, k_BD in zip(grouped, means.keys, strict=True))
    chosen = [sum(scores)] if patterns == 1 else scores
    return np.stack([_best(score, visible, always, count) for score in chosen])


def _best(score: Floats, visible: NDArray[np.bool_], always: NDArray[np.bool_], count: int) -> NDArray[np.bool_]:
    ranked = np.where(always, np.inf, np.where(visible, score, -np.inf))
    order = np.argsort(-ranked, axis=1, kind="stable")
    place = np.empty_like(order)
    np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
    return np.asarray(visible & (place < np.maximum(count, always.sum(1))[:, None]))


def _visible(row_edges: Ints, col_edges: Ints) -> NDArray[np.bool_]:
    return np.asarray(col_edges[None, :-1] < row_edges[1:, None])


def _always(rule: Rule, row_edges: Ints, col_edges: Ints) -> NDArray[np.bool_]:
    """The sinks, and the key blocks from a few before the first row's own to the last row's own."""
    first, last = (np.searchsorted(col_edges, row, side="right") - 1 for row in (row_edges[:-1], row_edges[1:] - 1))
    block = np.arange(len(col_edges) - 1)[None, :]
    return np.asarray((block < rule.sinks) | ((block >= first[:, None] - rule.before) & (block <= last[:, None])))
