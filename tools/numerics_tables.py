"""The table of errors against fp64 by method, from results/cpu/numerics.jsonl."""

from __future__ import annotations

from functools import cache
from typing import Any

from measured_tables import json_rows

from longca.results.tables import markdown_table

NAMES = ("out", "dq", "dk", "dv")
RANKS = (2, 8, 64)
LIKE_OTHERS = ("loongtrain", "hybrid_dcp", "burst", "mesh")  # methods whose errors are those of usp or of ring_p2p
Row = dict[str, Any]


@cache
def rows() -> list[Row]:
    return json_rows("cpu/numerics.jsonl")


def of_methods() -> str:
    """The largest ratio to the error of one call over masks, out, dq, dk and dv; and the largest share of elements with other bits."""
    measured = [row for row in rows() if "method" in row and "refused" not in row]
    shown = (method for method in dict.fromkeys(row["method"] for row in measured) if method not in LIKE_OTHERS)
    return markdown_table(
        ["method", *(f"{ranks} ranks" for ranks in RANKS)],
        [[method, *(_worst(measured, method, ranks) for ranks in RANKS)] for method in shown],
    )


def _worst(measured: list[Row], method: str, ranks: int) -> str:
    found = [row for row in measured if (row["method"], row["ranks"]) == (method, ranks)]
    ratios = [row[f"{name}_far"] / row[f"{name}_far_of_one_call"] for row in found for name in NAMES]
    changed = [row[f"{name}_changed"] for row in found for name in NAMES]
    return f"{max(ratios):.2f} ({max(changed):.0%})" if found else "-"


TABLES = {"numerics-methods": of_methods}
