"""Records for other programs: flat rows for CSV and Parquet, a Markdown table, PyTorch's benchmark format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from longca.bench.metrics import tokens_s
from longca.bench.summary import is_sparse, label, places, shape, typical, with_params
from longca.errors import BadInput, Unavailable
from longca.text import format_size, printable

Record = dict[str, Any]
TENSORS = ("out", "lse", "dq", "dk", "dv")
NOISY = "`~`: noisy, sampling ended before the median was known to the clock's target."
ABOUT = (  # what tells the cells of one name apart in PyTorch's format; levels and older records lack some
    *("level", "asked", "kernel", "variant", "mask", "mask_digest", "source", "seed", "seqlen", "heads_q", "heads_kv", "head_dim"),
    *("head_dim_v", "dtype", "pass", "grad", "deterministic", "method", "ranks", "grid", "simulated"),
)


def flat(record: Record, environments: Mapping[str, Record]) -> Record:
    """One level of plain values: what is nested gets a name with a line in between; samples are left out, tokens per second
    come in. Texts of older records may hold what cannot be written."""
    row = {name: value for name, value in record.items() if name not in ("ms", "check", "params", "given")}
    row |= {name: json.dumps(record[name], sort_keys=True) for name in ("params", "given") if name in record}
    row |= {f"ms_{part}": (record["ms"] or {}).get(part) for part in ("median", "p20", "p80", "n", "spread", "stop")}
    row["tokens_s"] = tokens_s(record["seqlen"], record["ms"]["median"]) if record["ms"] else None
    for tensor in TENSORS:
        found = (record["check"] or {}).get(tensor) or {}
        row |= {f"check_{tensor}_{part}": found.get(part) for part in ("error", "allowed")}
    facts = environments.get(record["env"], {})
    row |= {"device": facts.get("device"), "torch": facts.get("packages", {}).get("torch"), "commit": facts.get("commit")}
    return {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}


def table(records: Iterable[Record], environments: Mapping[str, Record]) -> list[Record]:
    """Flat rows that all have the same columns: levels differ in their fields."""
    rows = [flat(record, environments) for record in records]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in columns} for row in rows]


def to_csv(records: Iterable[Record], environments: Mapping[str, Record]) -> str:
    rows, text = table(records, environments), io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def to_markdown(records: Iterable[Record], environments: Mapping[str, Record]) -> str:
    """A table per pass and shape: a row per mask and length, a column per kernel, TFLOP/s or the status; of several seeds the median."""
    tables = dict[str, list[Record]]()
    for record in records:
        tables.setdefault(f"{record['pass']}, {shape(record, environments)} (TFLOP/s)", []).append(record)
    parts = [f"{NOISY}\n"] if any(record.get("noisy") for group in tables.values() for record in group) else []
    for title, group in tables.items():
        rows = {place: {kernel: typical(found) for kernel, found in kernels.items()} for place, kernels in places(group).items()}
        kernels = sorted({kernel for row in rows.values() for kernel in row})
        lines = [f"### {title}", "", f"| mask | tokens | {' | '.join(kernels)} |", f"|---|---|{'---|' * len(kernels)}"]
        lines += [
            f"| {mask} | {format_size(n)} | {' | '.join(row.get(kernel, '') for kernel in kernels)} |" for (mask, n), row in rows.items()
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def to_hud(records: Iterable[Record], environments: Mapping[str, Record]) -> str:
    """PyTorch's benchmark format, version 3: a JSON list with one entry per figure."""
    entries = []
    for record in records:
        if record["status"] != "ok":
            continue
        facts = environments.get(record["env"], {})
        about = {name: record.get(name) for name in ABOUT} | {"params": json.dumps(record["params"], sort_keys=True)}
        about |= {"device": facts.get("device"), "arch": facts.get("device")}
        mode = "training" if record["grad"] else "inference"
        benchmark = {"name": "longca", "mode": mode, "dtype": record["dtype"], "extra_info": about}
        mask = with_params(record).replace(" ", "-") if is_sparse(record) else record["mask"]
        title, kind = f"{mask}-{record['seqlen']}-{record['pass']}", f"attention-{record['level']}"
        model = {"name": title, "type": kind, "backend": label(record), "origins": ["longca"]}
        for name, unit, values in (("tflops", "TFLOP/s", [record["tflops"]]), ("latency", "ms", record["ms"]["samples"])):
            metric = {"name": name, "unit": unit, "benchmark_values": values, "target_value": None, "extra_info": {"unit": unit}}
            versions = {package: {"version": number} for package, number in facts.get("packages", {}).items()}
            entries.append({"schema_version": "v3", "benchmark": benchmark, "model": model, "metric": metric, "dependencies": versions})
    return json.dumps(entries, indent=1) + "\n"


def write_parquet(records: Iterable[Record], environments: Mapping[str, Record], path: str) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise Unavailable("writing Parquet needs pyarrow; pip install pyarrow, or use --csv.") from error
    rows = arrow.Table.from_pylist(table(records, environments))
    try:
        with Path(path).open("wb") as file:  # an error of Python's own is one sentence
            parquet.write_table(rows, file)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; give another file.") from error
