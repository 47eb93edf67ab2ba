"""Writes src/longca/simulate/errors.json: how far measured times are from predictions, for all clusters that were compared.

    PYTHONPATH=src python benchmarks/simulate_errors.py              # ten minutes on two cores
    PYTHONPATH=src python benchmarks/simulate_errors.py h200-shared-8   # of one cluster; the others stay

Run it when the model, a method's program or a cluster's constants change; `longca simulate --validate` prints the figures behind it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from longca.results.grouping import grouped
from longca.simulate.against import against
from longca.simulate.cluster import find
from longca.simulate.errors import FILE, Compared, Ledger, constants_of, kind_of, ledgers
from longca.simulate.published import compare, published

CLUSTERS = ("h100-ib", "b200-ib")  # with published figures
RESULTS = Path(__file__).parents[1] / "results"
RANKS = {"cpu-gloo": ("cpu/gloo", "gloo ranks on two cores"), "h200-shared-8": ("h200-shared/ranks", "8 NCCL ranks that share one H200")}
Key = tuple[str, str, int, int]


def rows(errors: Iterable[tuple[Key, float]]) -> list[Compared]:
    together = grouped(errors, lambda entry: entry[0])
    return [Compared(*key, [round(error, 3) for _, error in own]) for key, own in together.items()]


def of_published(name: str) -> Ledger:
    _, cluster = find(name)
    figures = published(name)
    errors = [
        ((point.figure.method, kind_of(point.figure.mask), point.figure.gpus, figures.tokens_per_gpu), point.error)
        for point in compare(figures, cluster)
    ]
    return Ledger(constants_of(cluster), f"published charts of {cluster.device} clusters, read off", cluster.per_node, rows(errors))


def of_ranks(name: str) -> Ledger:
    """Of measured ranks: of shared GPUs as many as share one in this cluster, as others have another part of it."""
    _, cluster = find(name)
    folder, source = RANKS[name]
    errors = []
    for pair in against(RESULTS / folder, cluster):
        problem = pair.record.problem
        if cluster.cores or problem.ranks == cluster.per_node:
            key = (pair.record.method or "", kind_of(problem.mask), problem.ranks, problem.seqlen // problem.ranks)
            errors.append((key, pair.record.times.median / pair.ms - 1))
    return Ledger(constants_of(cluster), f"{source} (results/{folder})", cluster.per_node, rows(errors))


def main(names: Sequence[str]) -> None:
    made = {name: of_published(name) if name in CLUSTERS else of_ranks(name) for name in names or (*CLUSTERS, *RANKS)}
    parts = []
    for name, ledger in (ledgers() | made).items():
        lines = ",\n  ".join(msgspec.json.encode(row).decode() for row in ledger.rows)
        head = f'"constants": "{ledger.constants}", "source": "{ledger.source}", "per_node": {ledger.per_node}'
        parts.append(f'"{name}": {{{head}, "rows": [\n  {lines}]}}')
    FILE.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
