"""How evenly methods and the balancers of other projects share the work of each mask, and what they send: twelve masks, and documents of
three distributions. Exact, from plans; no GPU.

    PYTHONPATH=src python benchmarks/balancers.py > results/cpu/balancers.txt
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import longca
from longca import masks
from longca.cli._tables import show_parts
from longca.masks.pattern import MORE
from longca.parallel import registry
from longca.results.tables import Table
from longca.text import format_memory

DISTRIBUTIONS = ("pile", "prolong64k", "prolong512k")
PAPER = [name for name, pattern in masks.PATTERNS.items() if pattern.group != MORE]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seqlen", default="128K")
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    methods = [name for name in registry.names() if name != "loongtrain"] + [
        name for name in registry.peers() if registry.get(name).balancer
    ]
    with_documents = [name for name in PAPER if masks.PATTERNS[name].has_documents]
    print(f"{given.seqlen} tokens on {given.gpus} GPUs, forward, 64:8 heads of 128, seeds 0 to {given.seeds - 1}.")
    print("Cells: the largest imbalance (work of the heaviest rank over the mean), and the most bytes that a rank sends.\n")
    table("masks without documents", [name for name in PAPER if name not in with_documents], methods, given, None)
    for distribution in DISTRIBUTIONS:
        table(f"documents of {distribution}", with_documents, methods, given, distribution)


def table(title: str, names: Sequence[str], methods: Sequence[str], given: argparse.Namespace, distribution: str | None) -> None:
    options = {"gpus": given.gpus, "seqlens": given.seqlen, "passes": "fwd", "seeds": given.seeds, "distribution": distribution}
    rows = longca.plan(methods, names, **options).rows
    cells = []
    for method in methods:
        row = [method]
        for name in names:
            own = [entry for entry in rows if (entry["method"], entry["mask"].partition("(")[0]) == (method, name)]
            planned = [entry for entry in own if not entry["refusal"]]
            sent = max((entry["inside_bytes"] + entry["between_bytes"] for entry in planned), default=0)
            row.append(f"{max(entry['imbalance'] for entry in planned):.2f} {format_memory(sent)}" if planned else "-")
        cells.append(row)
    show_parts([Table(title, ["method", *names], cells), ""])


if __name__ == "__main__":
    main()
