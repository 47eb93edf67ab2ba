"""Tables of what was counted and timed inside single calls on the H200: counters of `ncu`, and how long a new mask keeps a step waiting."""

from __future__ import annotations

from typing import Any

from measured_tables import json_rows

from longca.results.tables import markdown_table

UNITS = {"tensor": "tensor cores", "exp": "exponentials", "DRAM": "DRAM"}
STALLS = {"long_scoreboard": "memory", "barrier": "barriers", "wait": "fixed latency", "gmma": "wgmma"}
STEPS = {"plan_ms": "planned by a data loader", "prepare_ms": "prepared a step ahead", "first_kernel_ms": "until the first kernel"}
MASKS = ("full", "causal", "sliding_window_causal", "causal_document", "share_question", "causal_blockwise")
Row = dict[str, Any]


def counters() -> str:
    """The longest GPU kernel of each call, and what the others of the call take."""
    rows = sorted(json_rows("h200/counters.jsonl"), key=lambda row: (row["pass"] == "bwd", MASKS.index(row["mask"])))
    titles = ["mask", "pass", "kernel", "of the limit", "ms", *UNITS.values(), *STALLS.values(), "SMs busy", "other GPU kernels"]
    return markdown_table(titles, [_counted(row) for row in rows])


def _counted(row: Row) -> list[str]:
    longest, *others = sorted(row["kernels"], key=lambda kernel: -kernel["ns"])
    whole = sum(kernel["ns"] for kernel in row["kernels"])
    used = [f"{longest[unit]:.0f}%" for unit in UNITS]
    waits = [f"{longest[f'stall_{reason}'] / longest['latency']:.0%}" for reason in STALLS]
    rest = [f"{kernel['ns'] / whole:.0%}, DRAM {kernel['DRAM']:.0f}%" for kernel in others]
    lead = [row["mask"], row["pass"], f"`{row['kernel']}`", f"{row['share_of_limit']:.2f}", f"{row['ms']:.3g}"]
    return [*lead, *used, *waits, f"{longest['active_avg'] / longest['cycles']:.0%}", "; ".join(rest)]


def new_mask() -> str:
    """Milliseconds by method: in a data loader, a step ahead, and before the first kernel."""
    rows = [row for row in json_rows("h200/new_mask.jsonl") if "refused" not in row]
    return markdown_table(["ms", *STEPS.values()], [[row["method"], *(f"{row[name]:.1f}" for name in STEPS)] for row in rows])


TABLES = {"counters": counters, "new-mask": new_mask}
