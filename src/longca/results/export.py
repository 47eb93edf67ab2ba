"""Records for other programs: flat columns for CSV and Parquet and Markdown tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from longca.errors import Unavailable
from longca.results.groups import Groups, groups_of
from longca.results.metrics import tokens_s
from longca.results.problem import TENSORS
from longca.results.reading import Results
from longca.results.record import Environment, Record
from longca.results.roofline import bandwidth_of, of_record
from longca.results.summary import speeds, supported
from longca.results.tables import Table, markdown_section
from longca.results.versions import is_older
from longca.text import format_size, printable

NOISY = "`~`: noisy; sampling ended before the median reached the target precision."
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first letters that make a spreadsheet compute a cell
TIMES = ("median", "p20", "p80", "n", "spread", "stop")
Column = list[Any]
_encode = msgspec.json.Encoder(order="sorted").encode


def columns(results: Results) -> dict[str, Column]:
    """All fields of all records as flat columns: nested fields have a name with an underscore in between, samples are left out; tokens
    per second, the roofline, and whether the code that was measured is older than this LongCA's, are added."""
    rows = as_rows(results)
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}


def as_rows(results: Results) -> list[dict[str, Any]]:
    """One row per cell with every field of its record; docs/results.md explains them."""
    return [_row(record, results.environment(record)) | _later_columns(record, results) for record in results.records]


def _row(record: Record, environment: Environment) -> dict[str, Any]:
    """The columns of a record, in an order that stays: programs read them by number too."""
    problem, built, split = record.problem, record.built, record.split
    timed, energy, over_ranks = record.timed, record.energy, record.over_ranks
    row = _of(record, "status", "reason", "variant", "backward_kind", "chose", "grad", "build_ms", "plan_ms", "compile_ms")
    row["noisy"] = None if timed is None or record.simulated else timed.noisy
    row |= _of(timed, "call_ms", "host_bound", "nondeterministic", "tflops", "mfu")
    row |= _of(record, "peak_gib") | _of(timed, "clock_mhz") | _of(energy, "watts", "joules")
    row |= _of(over_ranks, "imbalance", "mean_ms", "imbalance_ms", "bytes_sent")
    row["peak_gib_ranks"] = record.memory.ranks if record.memory else None
    row |= _of(over_ranks, "wait_share", "exposed_share", "hidden_share")
    row |= _of(record, "schema", "key", "env", "level", "kernel", "asked") | _of(problem, "mask")
    row |= {"params": _json(built.params), "mask_digest": built.digest}
    row |= _of(problem, "seed", "seqlen", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "deterministic")
    row |= {"pass": problem.pass_, "source": problem.source if problem.is_pattern else None}
    row |= _of(built, "seqlen_q", "seqlen_k") | {"given": _json(_given(record)), "area": built.area, "flops": record.flops}
    row["versions"] = None if record.versions is None else _json(record.versions)
    row |= {"method": record.method, "ranks": problem.ranks if split else None}
    row |= {"grid": split.grid if split else None, "options": split.options or None if split else None, "simulated": record.simulated}
    row |= _of(problem, "softcap", "sinks", "scale")
    row |= {f"ms_{name}": len(timed.samples) if name == "n" and timed else getattr(timed, name, None) for name in TIMES}
    row["tokens_s"] = None if timed is None else tokens_s(problem.seqlen, timed.median)
    row["older"] = record.ok and is_older(record)
    for tensor in TENSORS:
        error = (record.check or {}).get(tensor)
        row[f"check_{tensor}_error"] = None if error is None else error.error
        row[f"check_{tensor}_allowed"] = None if error is None else error.allowed
    row |= {"device": environment.device, "torch": environment.packages.get("torch"), "commit": environment.commit}
    return {name: printable(str(value)) if isinstance(value, str) else value for name, value in row.items()}


def _later_columns(record: Record, results: Results) -> dict[str, Any]:
    """The bytes that the pass moves at least, per second in GB, the least time of the device at the clock of the record, what takes it, and
    the work on all pairs of the touched tiles; None over several ranks. Then how ranks shared GPUs, what they called and took, and for how
    much of the time they computed."""
    limit = of_record(record, results)
    row: dict[str, Any] = {"bytes": limit and limit.bytes, "gb_s": bandwidth_of(record), "limit_ms": limit and limit.limit_ms}
    counted = limit is not None and not record.problem.is_pattern  # the journal has no tiles of block patterns
    row |= {"bound": (limit and limit.bound) or None, "tile_flops": round(limit.tile_flops) if limit and counted else None}
    sharing = record.problem.sharing
    row |= {"sharing": None if sharing is None else str(sharing), "ranks_per_gpu": None if sharing is None else sharing.ranks}
    return row | _of(record.over_ranks, "nccl", "compute_share") | _of(record.memory, "outside_gib") | _of(record, "select_ms")


def _of(part: object, *names: str) -> dict[str, Any]:
    """These fields of a part of a record; None where the record does not have it."""
    return {name: getattr(part, name, None) for name in names}


def _given(record: Record) -> dict[str, Any]:
    """What was asked for and no other column says."""
    problem = record.problem
    drawn = {name: value for name in ("distribution", "packing") if (value := getattr(problem, name)) is not None}
    flags = {name: True for name, is_set in (("documents", problem.documents is not None), ("grad", record.planned_grad)) if is_set}
    return ({"params": dict(problem.params)} if problem.params else {}) | drawn | flags


def _json(value: object) -> str:
    return _encode(value).decode()


def to_csv(results: Results) -> str:
    """One row per cell. An apostrophe keeps a spreadsheet from taking text for a formula."""
    rows, text = as_rows(results), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(rows[0] if rows else [])
    for row in rows:
        writer.writerow([f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in row.values()])
    return text.getvalue()


def to_markdown(results: Results) -> str:
    """Returns a table per setting and pass: a row per mask and length, a column per kernel, the speed or the status; of several seeds all
    work over all time. Kernels and masks that are unsupported throughout are named below."""
    noisy = [f"{NOISY}"] if any(record.noisy for record in results.records) else []
    groups = groups_of(results)
    absent = sorted({row.line for row in groups.rows} - supported(groups.rows))
    note = [f"Not shown, because nothing here is supported: {', '.join(absent)}."] if absent else []
    return "\n\n".join([*noisy, *map(markdown_section, speed_tables(groups)), *note]) + "\n"


def speed_tables(groups: Groups) -> list[Table]:
    """A row per mask and length, a column per kernel."""
    tables = []
    for own in speeds(groups):
        cells = [[panel, format_size(n), *(texts.get(line, "") for line in own.lines)] for (panel, n), texts in own.places.items()]
        tables.append(Table(f"{own.contest.title} ({own.each})", ["mask", "tokens", *own.lines], cells))
    return tables


WRITERS: dict[str, Callable[[Results], str]] = {"csv": to_csv, "md": to_markdown}


def write_parquet(results: Results, path: Path) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise Unavailable("writing Parquet needs pyarrow; pip install pyarrow, or use --csv.") from error
    samples = [record.timed.samples if record.timed else None for record in results.records]
    table = arrow.Table.from_pydict(columns(results) | {"samples": samples})
    with path.open("wb") as file:  # an error of Python's own has words of its own
        parquet.write_table(table, file)
