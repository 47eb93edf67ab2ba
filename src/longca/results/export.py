"""Records for other programs: flat columns for CSV and Parquet, Markdown tables, PyTorch's benchmark format."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from longca.errors import BadInput, Unavailable
from longca.results import naming
from longca.results.metrics import tokens_s
from longca.results.naming import contests, is_pattern, mask_title, rows
from longca.results.reading import Results
from longca.results.problem import TENSORS
from longca.results.record import Record, Status
from longca.results.summary import typical_speeds
from longca.results.tables import Table, markdown_section, speed_unit
from longca.results.versions import is_older
from longca.text import format_size, printable

NOISY = "`~`: noisy; sampling ended before the median reached the target precision."
UNSUPPORTED = ("", Status.UNSUPPORTED.value, Status.UNAVAILABLE.value)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # first letters that make a spreadsheet compute a cell
FIELDS = [field.encode_name for field in msgspec.structs.fields(Record)]
CHUNK = 1000  # records whose columns are made at a time: they stay in the processor's cache
NESTED = ("ms", "check")
AS_JSON = ("params", "given", "versions")
TIMES = ("median", "p20", "p80", "n", "spread", "stop")
IDENTIFYING = (  # what tells cells of one name apart in PyTorch's format
    *("level", "asked", "kernel", "variant", "mask", "mask_digest", "source", "seed", "seqlen", "heads_q", "heads_kv", "head_dim"),
    *("head_dim_v", "dtype", "pass_", "grad", "deterministic", "softcap", "sinks", "scale", "method", "ranks", "grid", "options"),
    "simulated",
)
Column = list[Any]


def columns(results: Results) -> dict[str, Column]:
    """All fields of all records as flat columns, fit to be written: text that cannot be, or disturbs a terminal, is replaced."""
    table: dict[str, Column] = {}
    for chunk in column_chunks(results):
        for name, values in chunk.items():
            table.setdefault(name, []).extend(values)
    return {name: _printable(values) for name, values in table.items()}


def column_chunks(results: Results) -> Iterator[dict[str, Column]]:
    """All fields of all records as flat columns, of some records at a time: nested fields have a name with an underscore in between,
    samples are left out; tokens per second, and whether the code that was measured is older than this LongCA's, are added."""
    for start in range(0, max(1, len(results.records)), CHUNK):
        yield _columns_of(results.records[start : start + CHUNK], results)


def _columns_of(records: Sequence[Record], results: Results) -> dict[str, Column]:
    table: dict[str, Column] = {}
    transposed = zip(*map(msgspec.structs.astuple, records), strict=True)  # looking at each record once is faster than at each column
    for name, values in zip(FIELDS, transposed if records else [()] * len(FIELDS), strict=True):
        if name not in NESTED:
            table[name] = _as_json(values) if name in AS_JSON else list(values)
    times = [record.timed for record in records]
    for name in TIMES:
        value = attrgetter(name)
        table[f"ms_{name}"] = [None if own is None else value(own) for own in times]
    table["tokens_s"] = [None if record.timed is None else tokens_s(record.problem.seqlen, record.ms.median) for record in records]
    table["older"] = [record.ok and is_older(record) for record in records]
    checks = [record.check or {} for record in records]
    for tensor in TENSORS:
        errors = [check.get(tensor) for check in checks]
        table[f"check_{tensor}_error"] = [None if error is None else error.error for error in errors]
        table[f"check_{tensor}_allowed"] = [None if error is None else error.allowed for error in errors]
    environments = [results.environment(record) for record in records]
    table["device"] = [environment.device for environment in environments]
    table["torch"] = [environment.packages.get("torch") for environment in environments]
    table["commit"] = [environment.commit for environment in environments]
    return table


def _printable(values: Column) -> Column:
    """Text that cannot be written or disturbs a terminal is replaced; enums become text."""
    if not any(issubclass(kind, str) for kind in set(map(type, values))):
        return values
    texts = {value: printable(str(value)) for value in set(values) if isinstance(value, str)}
    changed = any(type(value) is not str or value != text for value, text in texts.items())
    return [texts.get(value, value) for value in values] if changed else values


def _as_json(values: Sequence[Any]) -> Column:
    """The values as JSON. What a reader shares among records is encoded once."""
    encode = msgspec.json.Encoder(order="sorted").encode
    texts = {id(value): None if value is None else encode(value).decode() for value in {id(value): value for value in values}.values()}
    return [texts[id(value)] for value in values]


def to_csv(results: Results) -> str:
    table, text = columns(results), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(map(_cells, zip(*table.values(), strict=True)))
    return text.getvalue()


def _cells(row: Sequence[Any]) -> list[Any]:
    """The cells of a row. An apostrophe keeps a spreadsheet from taking text for a formula."""
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in row]


def to_markdown(results: Results) -> str:
    """Returns a table per setting and pass: a row per mask and length, a column per kernel, the speed or the status; of several seeds the
    median. Kernels and masks that are unsupported throughout are named below."""
    noisy = [f"{NOISY}"] if any(record.noisy for record in results.records) else []
    named = rows(results)
    tables = speed_tables(named)
    shown = {line for table in tables for line in table.columns}
    absent = sorted({row.line for row in named} - shown)
    note = [f"Not shown, because nothing here is supported: {', '.join(absent)}."] if absent else []
    return "\n\n".join([*noisy, *map(markdown_section, tables), *note]) + "\n"


def speed_tables(named: Sequence[naming.Row]) -> list[Table]:
    """Returns the typical speed of each kernel on each mask and length, or its statuses. Rows and columns without anything supported are
    left out."""
    groups: dict[tuple[str, bool], list[list[naming.Row]]] = {}
    for contest, own in contests(named).items():
        simulated = f", simulated on {contest.simulated}" if contest.simulated else ""
        groups.setdefault((f"{contest.pass_}, {contest.setting.title}{simulated}", bool(contest.ranks)), []).append(own)
    return [table for (title, split), group in groups.items() if (table := _speed_table(title, split, group)).rows]


def _speed_table(title: str, split: bool, group: Sequence[list[naming.Row]]) -> Table:
    unit = speed_unit(row.record.speed for own in group for row in own if row.record.ok)
    places: dict[tuple[str, int], dict[str, str]] = {}
    for own in group:
        places.setdefault((own[0].panel, own[0].record.problem.seqlen), {}).update(typical_speeds(own, unit))
    told = {place: speeds for place, speeds in places.items() if any(text not in UNSUPPORTED for text in speeds.values())}
    lines = sorted({line for speeds in told.values() for line, text in speeds.items() if text not in UNSUPPORTED})
    cells = [[panel, format_size(n), *(speeds.get(line, "") for line in lines)] for (panel, n), speeds in told.items()]
    return Table(f"{title} ({unit.name}{' of each rank' if split else ''})", ["mask", "tokens", *lines], cells)


def to_hud(results: Results) -> str:
    """PyTorch's benchmark format, version 3: a JSON list with one entry per figure."""
    entries = [entry for record in results.records if record.ok for entry in _hud(record, results)]
    return msgspec.json.format(msgspec.json.encode(entries), indent=1).decode() + "\n"


def _hud(record: Record, results: Results) -> list[dict[str, Any]]:
    environment = results.environment(record)
    info = {name.rstrip("_"): getattr(record, name) for name in IDENTIFYING} | {"params": _as_json([record.built.params])[0]}
    info |= {"device": environment.device, "arch": environment.device}
    mode = "training" if record.grad else "inference"
    benchmark = {"name": "longca", "mode": mode, "dtype": record.problem.dtype, "extra_info": info}
    mask = mask_title(record).replace(" ", "-") if is_pattern(record) else record.problem.mask
    line = f"{record.split_name} {record.label}" if record.method else record.label
    title, kind = f"{mask}-{record.problem.seqlen}-{record.problem.pass_}", f"attention-{record.level}"
    model = {"name": title, "type": kind, "backend": line, "origins": ["longca"]}
    versions = {package: {"version": number} for package, number in environment.packages.items()}
    figures: tuple[tuple[str, str, list[float]], ...] = (("tflops", "TFLOP/s", [record.speed]), ("latency", "ms", record.times.samples))
    metrics = [
        {"name": name, "unit": unit, "benchmark_values": values, "target_value": None, "extra_info": {"unit": unit}}
        for name, unit, values in figures
    ]
    return [{"schema_version": "v3", "benchmark": benchmark, "model": model, "metric": one, "dependencies": versions} for one in metrics]


WRITERS: dict[str, Callable[[Results], str]] = {"csv": to_csv, "md": to_markdown, "hud": to_hud}


def write_parquet(results: Results, path: str) -> None:
    try:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise Unavailable("writing Parquet needs pyarrow; pip install pyarrow, or use --csv.") from error
    table = arrow.Table.from_pydict(columns(results))
    try:
        with Path(path).open("wb") as file:  # an error of Python's own is one sentence
            parquet.write_table(table, file)
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror}; give another file.") from error
