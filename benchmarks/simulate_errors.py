"""Writes src/longca/simulate/errors.json: how far measured times are from predictions, for all clusters that were compared.

    PYTHONPATH=src python benchmarks/simulate_errors.py            # five minutes on two cores

Run it when the model, a method's program or a cluster's constants change; `longca simulate --validate` prints the figures behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from longca.simulate.against import against
from longca.simulate.cluster import find
from longca.simulate.errors import FILE, Compared, Ledger, constants_of, kind_of
from longca.simulate.published import compare, published

CLUSTERS = ("h100-ib", "b200-ib")
GLOO, RECORDS = "cpu-gloo", Path(__file__).parents[1] / "results/cpu/gloo"
Key = tuple[str, str, int, int]


def rows(errors: Iterable[tuple[Key, float]]) -> list[Compared]:
    together: dict[Key, list[float]] = {}
    for key, error in errors:
        together.setdefault(key, []).append(round(error, 3))
    return [Compared(*key, values) for key, values in together.items()]


def of_published(name: str) -> Ledger:
    _, cluster = find(name)
    figures = published(name)
    errors = [
        ((point.figure.method, kind_of(point.figure.mask), point.figure.gpus, figures.tokens_per_gpu), point.error)
        for point in compare(figures, cluster)
    ]
    return Ledger(constants_of(cluster), f"published charts of {cluster.device} clusters, read off", rows(errors))


def of_gloo() -> Ledger:
    _, cluster = find(GLOO)
    errors = []
    for pair in against(RECORDS, cluster):
        problem = pair.record.problem
        key = (pair.record.method or "", kind_of(problem.mask), problem.ranks, problem.seqlen // problem.ranks)
        errors.append((key, pair.record.times.median / pair.ms - 1))
    return Ledger(constants_of(cluster), "gloo ranks on two cores (results/cpu/gloo)", rows(errors))


def main() -> None:
    ledgers = {name: of_published(name) for name in CLUSTERS} | {GLOO: of_gloo()}
    parts = []
    for name, ledger in ledgers.items():
        lines = ",\n  ".join(msgspec.json.encode(row).decode() for row in ledger.rows)
        head = f'"constants": "{ledger.constants}", "source": "{ledger.source}"'
        parts.append(f'"{name}": {{{head}, "rows": [\n  {lines}]}}')
    FILE.write_text("{" + ",\n".join(parts) + "}\n")


if __name__ == "__main__":
    main()
