"""Is the default method of a plan a good one? PYTHONPATH=src python benchmarks/default_method.py | tee results/cpu/default_method.txt

For the paper's masks and two models, on 8 and 64 ranks of two clusters: how much longer a forward and a backward take by
simulation than by the fastest of LongCA's methods, with the method of the rule and with the one that `Group.plan` chooses. Every method has
its default grid and options. Before that, what the choice costs, in seconds of the processor, and how good the method that one batch of
documents chooses is for others. A quarter of an hour on an idle machine.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from random import Random
from typing import NamedTuple

from longca import masks
from longca.errors import Refused
from longca.parallel import default_method, registry
from longca.parallel.default_method import CANDIDATES, FASTER, by_rule, candidates
from longca.parallel.planner import Wanted
from longca.results.problem import Pass
from longca.simulate.cluster import find
from longca.simulate.predict import predict
from longca.simulate.programs import Programs

CLUSTERS = {name: find(name)[1] for name in ("h100-ib", "gb200-nvl72")}  # nodes of 8 and of 72 GPUs
SHAPES = ((64, 8), (8, 1))  # of a whole model, and of one of 8 GPUs that share its heads
RANKS, TOKENS, SIZE = (8, 64), 8192, 128
METHODS = [name for name in registry.names() if name not in ("loongtrain", "block_cast")]  # usp's times; takes block patterns alone
PACKS = 8  # of a kind of documents


class Loss(NamedTuple):
    """How much longer two methods take than the fastest one, as shares of its time."""

    question: str
    cluster: str
    best: str
    rule: str
    of_rule: float
    choice: str
    of_choice: float


def questions(seqlen: int) -> dict[str, dict[str, object]]:
    """Masks by name, with the number of layers that have each."""
    alone = {name: {"masks": {"mask": masks.build(name, seqlen, seed=0)}} for name in masks.names()}
    causal, packed = masks.causal(seqlen), masks.build("causal_document", seqlen, seed=0)
    local, narrow = masks.sliding_window_causal(seqlen, w=1024), masks.sliding_window_causal(seqlen, w=128)
    models = {
        "1 causal : 5 window 1024": {"masks": {"global": causal, "local": local}, "layers": {"global": 1, "local": 5}},
        "documents, half window 128": {"masks": {"global": packed, "local": packed & narrow}},
    }
    return alone | models


def times(wanted: Wanted, ranks: int, methods: Iterable[str], on: Iterable[str] = CLUSTERS) -> dict[str, dict[str, float]]:
    """Milliseconds of each method on each cluster. Programs depend on the nodes, not on the rest of a cluster."""
    ms: dict[str, dict[str, float]] = {name: {} for name in on}
    for per_node in {min(ranks, CLUSTERS[name].per_node) for name in ms}:
        here = {name: CLUSTERS[name] for name in ms if min(ranks, CLUSTERS[name].per_node) == per_node}
        for method in methods:
            try:
                plans = wanted.plans(method, ranks, per_node, backward=True)
            except Refused:
                continue
            for mask, plan in plans.items():
                programs = Programs.of(plan)
                for name, cluster in here.items():
                    own = wanted.weights[mask] * predict(programs, cluster, Pass.BOTH).ms
                    ms[name][method] = ms[name].get(method, 0.0) + own
    return ms


def losses(heads: tuple[int, int], ranks: int) -> Iterator[Loss]:
    for question, given in questions(TOKENS * ranks).items():
        wanted = Wanted.of(given["masks"], heads, SIZE, "cuda", layers=given.get("layers"))  # type: ignore[arg-type]
        rule = by_rule(wanted.masks)
        for cluster, ms in times(wanted, ranks, METHODS).items():
            best = min(ms, key=ms.__getitem__)
            choice = chosen_of({name: ms[name] for name in candidates(wanted.masks) if name in ms}, rule)
            yield Loss(question, cluster, best, rule, ms[rule] / ms[best] - 1, choice, ms[choice] / ms[best] - 1)


def chosen_of(ms: dict[str, float], rule: str) -> str:
    best = min(ms, key=ms.__getitem__)
    return best if ms[best] * (1 + FASTER) < ms[rule] else rule


def packs(kind: str, seqlen: int) -> Iterator[masks.Mask]:
    """Packs of the paper's documents, or of documents with a lognormal length, most of them short."""
    for seed in range(PACKS):
        if kind == "paper":
            yield masks.causal_document(seqlen, seed=seed)
            continue
        draw, lengths, left = Random(seed), list[int](), seqlen
        while left:
            lengths.append(min(left, int(draw.lognormvariate(7.3, 1.3)) + 1))
            left -= lengths[-1]
        yield masks.causal_document(seqlen, documents=lengths)


def of_later_batches() -> None:
    print(f"\ncausal_document on h100-ib, {PACKS} packs: slower over all of them than the best of {', '.join(CANDIDATES)}")
    print(f"{'heads':8}{'ranks':>5} {'documents':12}{'rule':>7}{'choice':>8}  chosen by each pack")
    for heads in SHAPES:
        for ranks in RANKS:
            for kind in ("paper", "lognormal"):
                found = list[dict[str, float]]()
                for mask in packs(kind, TOKENS * ranks):
                    found.append(times(Wanted.of(mask, heads, SIZE, "cuda"), ranks, CANDIDATES, ("h100-ib",))["h100-ib"])
                totals = {name: sum(ms[name] for ms in found) for name in found[0] if all(name in ms for ms in found)}
                choices = [chosen_of({name: ms[name] for name in candidates({"": mask}) if name in ms}, "magi") for ms in found]
                best = min(totals.values())
                mean = statistics.mean(totals[choice] for choice in choices)
                said = ", ".join(f"{name} {number}" for name, number in Counter(choices).most_common())
                shown = f"{totals['magi'] / best - 1:>7.1%}{mean / best - 1:>8.1%}"
                print(f"{heads[0]}:{heads[1]:<6}{ranks:>5} {kind:12}{shown}  {said}", flush=True)


def of_methods() -> None:
    for heads in SHAPES:
        for ranks in RANKS:
            print(f"\n{ranks} ranks of {TOKENS} tokens, {heads[0]}:{heads[1]} heads: slower than the fastest method, the worst cluster")
            print(f"{'mask':28}{'rule':16}{'slower':>7} {'cluster':12}{'the fastest':16}{'choice slower':>13}")
            found = list(losses(heads, ranks))
            for question in dict.fromkeys(loss.question for loss in found):
                own = [loss for loss in found if loss.question == question]
                worst, chosen = max(own, key=lambda loss: loss.of_rule), max(loss.of_choice for loss in own)
                print(f"{question:28}{worst.rule:16}{worst.of_rule:>7.1%} {worst.cluster:12}{worst.best:16}{chosen:>13.1%}", flush=True)
            for name, values in (("rule", [loss.of_rule for loss in found]), ("choice", [loss.of_choice for loss in found])):
                print(f"{name}: median {statistics.median(values):.1%}, worst {max(values):.1%} of {len(values)}", flush=True)


def of_choices() -> None:
    print("\nwhat a choice costs, 64:8 heads, h100-ib: seconds of the processor")
    default_method.MOST_RANKS = sys.maxsize  # also beyond what `Group.plan` simulates
    for name in ("causal", "causal_document"):
        for ranks, seqlen in ((8, 131072), (64, 131072), (64, 524288), (256, 131072)):
            wanted = Wanted.of(masks.build(name, seqlen, seed=0), (64, 8), SIZE, "cuda")
            start = sum(os.times()[:4])  # of this process and of those that it forked
            method, _ = default_method.choose(wanted, ranks, 8, CLUSTERS["h100-ib"].device)
            print(f"{name:16} {ranks:4} ranks {seqlen:7} tokens {sum(os.times()[:4]) - start:6.1f} s: {method}", flush=True)


if __name__ == "__main__":
    of_choices()
    of_later_batches()
    of_methods()
