"""The method of a plan where none is named: that of a rule, unless another is clearly faster by simulation on a shipped cluster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from longca.errors import Refused
from longca.masks import AnyMask, BlockMask
from longca.parallel import registry

if TYPE_CHECKING:
    from longca.parallel.method import Plan
    from longca.parallel.planner import Wanted

SIMULATION = "longca.simulate.fastest"  # a room that imports this one, so it is looked up when a method is to be chosen
CANDIDATES = ("ulysses", "usp", "magi", "ring_allgather", "hybrid_dcp", "halo")  # see `benchmarks/default_method.py`
MOST_RANKS = 64  # whose simulation takes seconds in this process
FASTER = 0.05  # than the rule's method, that another must be: simulated times are off by more, and later batches differ
RULE = "the rule (magi for documents, windows and several masks, ring_allgather for block patterns, usp for the rest)"


def by_rule(masks: Mapping[str, AnyMask]) -> str:
    """Returns the method where nothing is known about the cluster: casts follow documents and windows, rings suit the rest."""
    if any(isinstance(mask, BlockMask) for mask in masks.values()):
        return "ring_allgather"
    is_local = any(len(mask.documents or ()) > 1 or 2 * mask.area < mask.seqlen_q * mask.seqlen_k for mask in masks.values())
    return "magi" if len(masks) > 1 or is_local else "usp"


def choose(wanted: Wanted, ranks: int, ranks_per_node: int, device: str) -> tuple[str, str]:
    """Returns the method and the reason for it. `device` is the name of every rank's GPU; empty: it has none, or they differ.

    What is not shared by all ranks must not count here: each of them chooses by itself.
    """
    rule = by_rule(wanted.masks)
    if ranks == 1 or ranks > MOST_RANKS or any(isinstance(mask, BlockMask) for mask in wanted.masks.values()):
        return rule, f"by {RULE}; only static masks on 2 to {MOST_RANKS} ranks are simulated"
    simulation = import_module(SIMULATION)
    found = simulation.cluster_of(device, ranks, ranks_per_node) if device else None
    if found is None:
        nodes = f"{ranks_per_node} ranks per node" if ranks_per_node else "such nodes"
        return rule, f"by {RULE}; LongCA has no cluster of {device or 'such devices'} with {nodes}"
    name, cluster = found
    start = time.perf_counter()
    plans = _plans(wanted, ranks, ranks_per_node)
    if rule not in plans:
        return rule, f"by {RULE}; it cannot do this"
    times = simulation.rivals(plans, rule, FASTER, wanted.weights, cluster)
    best = min(times, key=lambda method: times[method] * (1 if method == rule else 1 + FASTER))
    took = f"simulation on {name}, which took {time.perf_counter() - start:.1f} s"
    if best == rule:
        return rule, f"the rule's, as no other is {100 * FASTER:g} % faster by {took}"
    return best, f"the fastest by {took}; the rule's, {rule}, takes {times[rule] / times[best]:.2f} times as long"


def candidates(masks: Mapping[str, AnyMask]) -> list[str]:
    """Returns the methods to compare, the rule's first: not those that may refuse other documents, or several masks, nor those that lay
    tokens out by documents, because they may be the slowest for the next ones."""
    several, documents = len(masks) > 1, any(mask.documents for mask in masks.values())
    methods = [registry.get(name) for name in dict.fromkeys([by_rule(masks), *CANDIDATES])]
    return [one.name for one in methods if (one.takes_every_mask or not documents) and (one.takes_any_shards or not (several or documents))]


def _plans(wanted: Wanted, ranks: int, ranks_per_node: int) -> dict[str, dict[str, Plan]]:
    """Returns what candidates do under each mask; those that cannot do it are left out."""
    plans: dict[str, dict[str, Plan]] = {}
    for name in candidates(wanted.masks):
        with suppress(Refused):
            plans[name] = wanted.plans(name, ranks, ranks_per_node, backward=True)
    return plans
