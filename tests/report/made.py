"""Made journals: records as `longca run` writes them, with times that a test chooses.

Tests choose fields side by side; `nested` puts them where a journal has them.
"""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from longca import masks
from longca.results import record as records
from longca.results.doubts import without_doubtful
from longca.results.metrics import flops_of
from longca.results.problem import Pass, Problem, Split
from longca.results.ratio import ENOUGH_SAMPLES
from longca.results.reading import Results
from longca.results.schema import decode_environments, decode_record

Record = dict[str, Any]
ENVIRONMENT = {
    "device": "NVIDIA H200",
    "device_kind": "cuda",
    "cpu": "Some CPU",
    "gpus": 1,
    "driver": "580.1",
    "python": "3.12.3",
    "longca": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "packages": {"torch": "2.11.0"},
    "threads": None,
    "clock": {"target": 0.02, "budget_s": 1.0},
}


PARTS = {"built": records.BuiltMask, "memory": records.Memory, "energy": records.Energy, "over_ranks": records.RankFigures, "split": Split}
PEAK = 989  # of the H200, TFLOP/s
FLOPS = 11_000_000_000  # so few that no time a test chooses is faster than a device can be


def make_record(samples: Iterable[float] | None = (1.0,), spread: float = 0.01, **fields: Any) -> Record:
    """An ok record with these samples, or with None one that was not measured. A single sample stands for as many as are enough."""
    record: Record = {
        "key": "", "level": "kernel", "kernel": "fa4", "variant": "bands", "asked": "fa4", "backward_kind": "functional",
        "mask": "causal", "params": {}, "mask_digest": "d", "seed": 0, "seqlen": 8192, "heads_q": 64,
        "heads_kv": 8, "head_dim": 128, "head_dim_v": 128, "dtype": "bf16", "deterministic": False, "grad": True, "pass": "fwd",
        "status": "ok", "reason": "", "area": 33558528, "flops": FLOPS, "build_ms": 0.5, "plan_ms": 2.0,
        "check": {"out": {"error": 1e-4, "allowed": 3e-4}}, "ms": None, "noisy": False, "call_ms": 0.1, "host_bound": False,
        "tflops": None, "mfu": None, "peak_gib": 1.5, "clock_mhz": 1980, "watts": 600.0, "joules": None, "compile_ms": 900.0, "env": "e",
    }  # fmt: skip
    record |= {"key": json.dumps(fields, sort_keys=True)} | fields
    record |= {name: fields.get(name, record["seqlen"]) for name in ("seqlen_q", "seqlen_k")}
    record.setdefault("given", {"params": record["params"], "grad": record["grad"] and record["pass"] == "fwd"})
    if samples is None:
        nothing = ("check", "ms", "noisy", "call_ms", "host_bound", "tflops", "mfu")
        nothing += ("peak_gib", "clock_mhz", "watts", "joules", "compile_ms")
        failed = {"status": fields.get("status", "error"), "reason": fields.get("reason", "it broke")}
        return record | dict.fromkeys(nothing) | failed
    times = np.asarray(list(samples))
    times = times.repeat(ENOUGH_SAMPLES) if len(times) == 1 else times
    p20, median, p80 = (float(q) for q in np.percentile(times, [20, 50, 80]))
    ms = {"median": median, "p20": p20, "p80": p80, "samples": times.tolist(), "spread": spread, "stop": "target"}
    ranks = record.get("ranks") or 1
    if fields.get("mfu"):
        fields["tflops"] = fields["mfu"] * PEAK
    if "tflops" in fields:  # a speed that a test chooses: as much work as it takes
        record["flops"] = round(fields["tflops"] * median * 1e9 * ranks)
    if "area" in fields:
        record["flops"] = fields["area"] * _pair_work(record)[0] // _pair_work(record)[1]
    tflops = record["flops"] / ranks / median / 1e9
    return record | {"area": _area(record), "ms": ms, "tflops": tflops, "mfu": fields.get("mfu", tflops / PEAK)}


def _pair_work(record: Record) -> tuple[int, int]:
    """The work of a visible pair over all query heads, and over how many patterns pairs are counted."""
    patterns = record["params"].get("heads", record["heads_kv"]) if masks.has_blocks(record["mask"]) else 1
    return record["heads_q"] * flops_of(1, record["head_dim"], record["head_dim_v"], Pass(record["pass"])), patterns


def _area(record: Record) -> int:
    """As many pairs as the work has."""
    work, patterns = _pair_work(record)
    return round(record["flops"] * patterns / work)


def nested(flat: Record) -> Record:
    """The fields as schema 3 has them; those that are None are left out."""
    flat = {name: value for name, value in flat.items() if value is not None}
    given, built = flat.get("given", {}), {"digest": flat["mask_digest"]}
    new = _part(records.Record, flat) | {"schema": records.SCHEMA, "planned_grad": given.get("grad", False)}
    new["problem"] = _part(Problem, flat | given) | {"params": list(given.get("params", {}).items())}
    new["problem"] |= {"documents": []} if given.get("documents") else {}
    own = {"built": flat | built, "memory": flat | {"ranks": flat.get("peak_gib_ranks")}}
    new |= {name: part for name, kind in PARTS.items() if (part := _part(kind, own.get(name, flat)))}
    return new | ({"timed": _part(records.Times, flat | flat["ms"])} if flat["status"] == "ok" and "ms" in flat else {})


def _part(kind: Any, values: Record) -> Record:
    """The fields of one struct, as far as a test gives them."""
    return {name: values[name] for name in kind.__struct_encode_fields__ if values.get(name) is not None}


def line(record: Record) -> str:
    """The line of a journal, with its end."""
    return json.dumps(nested(record)) + "\n"


def kernel(name: str, samples: Any, which: str = "fwd+bwd", **fields: Any) -> Record:
    base, _, variant = name.partition(":")
    about = {"asked": name, "kernel": base, "variant": variant or None, "pass": which}
    return make_record(samples, **about | fields)


def around(ms: float) -> list[float]:
    return [ms * factor for factor in (0.99, 1.0, 1.0, 1.0, 1.01)]


def split(method: str, ms: float, ranks: int = 64, **fields: Any) -> Record:
    return kernel("fa4:bands", around(ms), level="cp", method=method, ranks=ranks, grid=f"8x{ranks // 8}", **fields)


def results_of(records: Iterable[Record], environments: Record | None = None) -> Results:
    """The records as they are read from journals, without writing one."""
    decoded = [decode_record(line(record | {"key": str(number)}).encode()) for number, record in enumerate(records)]
    facts = decode_environments(json.dumps(environments or {"e": ENVIRONMENT}).encode())
    return Results(without_doubtful(decoded, facts, {}), facts, homes={record.key: (0,) for record in decoded})


def blocks(name: str, samples: Any, heads: int = 8, **fields: Any) -> Record:
    return kernel(name, samples, level="sparse", mask="uniform_block", params={"b": 64, "ratio": 0.5, "heads": heads}, **fields)
