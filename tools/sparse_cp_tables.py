"""The table of block patterns over many GPUs, from results/simulated/sparse_cp.jsonl."""

from __future__ import annotations

from typing import Any

from measured_tables import json_rows

from longca.results.tables import markdown_table

METHODS = ("ulysses", "ring_allgather", "block_cast")
GPUS = (8, 32, 64, 96)
SHOWN = ("msa, 16 blocks", "nsa .05", "random .2")  # the others in the file are like one of these


def saved() -> str:
    """A row per pattern and number of GPUs: MiB that a GPU sends forward (mean), and milliseconds, of each method."""
    rows = json_rows("simulated/sparse_cp.jsonl")
    known = {(row["pattern"], row["gpus"], row["method"], row["pass"]): row for row in rows}

    def cells(pattern: str, gpus: int) -> list[str]:
        of_pass = [[known[pattern, gpus, method, pass_] for method in METHODS] for pass_ in ("fwd", "bwd")]
        return [_joined(of_pass[0], _mebibytes), *(_joined(same, lambda row: f"{row['ms']:.3g}") for same in of_pass)]

    places = [(pattern, gpus) for pattern in SHOWN for gpus in GPUS if (pattern, gpus, METHODS[-1], "bwd") in known]
    table = [[pattern, str(gpus), *cells(pattern, gpus)] for pattern, gpus in places]
    return markdown_table(["pattern", "GPUs", "MiB sent forward", "ms forward", "ms backward"], table)


def _mebibytes(row: dict[str, Any]) -> str:
    return f"{row['mean_sent_bytes'] / 2**20:.0f}"


def _joined(rows: list[dict[str, Any]], shown: Any) -> str:
    """Figures of all methods; `-` where one cannot do it."""
    return " / ".join(shown(row) if row["status"] == "ok" else "-" for row in rows)


TABLES = {"sparse-cp": saved}
