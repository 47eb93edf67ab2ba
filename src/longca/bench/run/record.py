"""A record: the one line that a cell becomes. docs/results.md says what each field means."""

from __future__ import annotations

from typing import Any

from longca import masks
from longca.bench import metrics
from longca.bench.cell import SCHEMA, Cell
from longca.bench.plan import Planned

# what exists only where something was measured
MEASURED = ("ms", "noisy", "call_ms", "host_bound", "tflops", "mfu", "peak_gib", "clock_mhz", "watts", "joules", "compile_ms")
LEVEL_FIELDS = {
    "cp": ("imbalance", "mean_ms", "imbalance_ms", "bytes_sent", "peak_gib_ranks", "wait_share")
}  # what only some levels measure
PREPARED = ("build_ms", "plan_ms", "check")


def given(cell: Cell) -> dict[str, Any]:
    """What was asked for and no other field tells: with it the same cell can be planned again. What was not given is left out."""
    grad = cell.grad and cell.which == "fwd"  # where the backward fails, the record's own `grad` is of the forward alone
    about = {"params": dict(cell.params), "distribution": cell.distribution, "packing": cell.packing, "grad": grad}
    return {name: value for name, value in (about | {"documents": cell.documents is not None}).items() if value}


def make(planned: Planned, found: dict[str, Any], environment: str) -> dict[str, Any]:
    """All fields, null where one does not apply. A time exists only where the status is ok."""
    cell, mask = planned.cell, planned.mask
    name, _, variant = cell.kernel.partition(":")
    if found.get("mask_digest", planned.digest) != planned.digest:
        found = {"status": "error", "reason": f"the worker built another mask ({found['mask_digest']}) than was planned ({planned.digest})"}
    ok = found["status"] == "ok"
    record = {
        "schema": SCHEMA,
        "key": planned.key,
        "level": cell.level,
        "kernel": name,
        "variant": found.get("variant") or variant or None,
        "asked": cell.kernel,
        "backward_kind": found.get("backward_kind"),
        "mask": cell.mask,
        "params": mask["params"],
        "source": cell.source if cell.mask in masks.block_names() else None,
        "mask_digest": planned.digest,
        "seed": cell.seed,
        "seqlen": cell.seqlen,
        "seqlen_q": mask["seqlen_q"],
        "seqlen_k": mask["seqlen_k"],
        "heads_q": cell.heads_q,
        "heads_kv": cell.heads_kv,
        "head_dim": cell.head_dim,
        "head_dim_v": cell.head_dim_v,
        "dtype": cell.dtype,
        "deterministic": cell.deterministic,
        "grad": found.get("grad", cell.grad),
        "pass": cell.which,
        "given": given(cell),
        "status": found["status"],
        "reason": found["reason"],
        "limited": bool(found.get("limited")),
        "area": planned.area,
        "flops": metrics.flops_of(planned.area * cell.heads_q // cell.patterns, cell.head_dim, cell.head_dim_v, cell.which),
    }
    record |= {field: found.get(field) for field in PREPARED}
    record |= {field: found.get(field) if ok else None for field in MEASURED}
    record |= {field: found.get(field) if ok else None for field in LEVEL_FIELDS.get(cell.level, ())}
    return record | dict(cell.extra) | {"env": environment}
