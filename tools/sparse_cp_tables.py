"""The tables of block patterns over many GPUs: simulated ones, and those that ranks on one H200 measured."""

from __future__ import annotations

from functools import cache
from typing import Any

from measured_tables import PASSES, journal, json_rows

from longca.results.problem import Problem
from longca.results.tables import markdown_table

METHODS = ("ulysses", "ring_allgather", "block_cast")
GPUS = (8, 96)
SHOWN = ("msa, 16 blocks", "nsa .05", "random .2")  # the others in the file are like one of these
CLUSTER, SHARED = "h100-ib", "h200-shared-8"
Rows = list[dict[str, Any]]


@cache
def simulated() -> dict[tuple[str, str, int], dict[str, Rows]]:
    """The simulated rows of all methods, by pass, for each cluster, pattern and number of GPUs."""
    rows = json_rows("simulated/sparse_cp.jsonl")
    found: dict[tuple[str, str, int], dict[str, Rows]] = {}
    for row in sorted(rows, key=lambda row: METHODS.index(row["method"])):
        found.setdefault((row["cluster"], row["pattern"], row["gpus"]), {}).setdefault(row["pass"], []).append(row)
    return found


def saved() -> str:
    """A row per pattern and number of GPUs: MiB that a GPU sends forward (mean), and milliseconds, of each method."""
    places = [(CLUSTER, pattern, gpus) for pattern in SHOWN for gpus in GPUS]
    table = []
    for place in [place for place in places if place in simulated()]:
        passes = simulated()[place]
        table.append([place[1], str(place[2]), _joined(passes["fwd"], _mebibytes), *(_joined(passes[p.value], _ms) for p in PASSES)])
    return markdown_table(["pattern", "GPUs", "MiB sent forward", "ms forward", "ms backward"], table)


def measured() -> str:
    """The same for eight ranks on one H200: measured, and the simulated times."""
    records = {(_pattern(r.problem), str(r.method), r.problem.pass_): r for r in journal("h200-shared/sparse").records}
    table = []
    for pattern in SHOWN:
        row = [pattern]
        for pass_ in PASSES:
            row.append(" / ".join(f"{records[pattern, method, pass_].times.median:.3g}" for method in METHODS))
            row.append(_joined(simulated()[SHARED, pattern, 8][pass_.value], _ms))
        table.append(row)
    return markdown_table(["pattern", "ms forward", "simulated", "ms backward", "simulated"], table)


def _pattern(problem: Problem) -> str:
    """The name of a record's pattern in the file of simulations."""
    return next(name for name in SHOWN if name.startswith(problem.source or "random"))


def _ms(row: dict[str, Any]) -> str:
    return f"{row['ms']:.3g}"


def _mebibytes(row: dict[str, Any]) -> str:
    return f"{row['mean_sent_bytes'] / 2**20:.0f}"


def _joined(rows: Rows, shown: Any) -> str:
    """Figures of all methods; `-` where one cannot do it."""
    return " / ".join(shown(row) if row["status"] == "ok" else "-" for row in rows)


TABLES = {"sparse-cp": saved, "sparse-shared": measured}
