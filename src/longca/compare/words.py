"""The words of a comparison and of a history: names of cells, changes, reasons, and what would decide unclear cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from longca.compare.verdicts import FAR, Cell, Doubt, Remark, Verdict, is_too_noisy
from longca.results.grouping import grouped
from longca.results.problem import Problem
from longca.results.ratio import ENOUGH_SAMPLES, Ratio
from longca.results.reading import identity_fields
from longca.results.record import Record
from longca.results.shown import Part
from longca.results.tables import Table
from longca.text import format_dims, format_heads, format_size, part_of, plural

if TYPE_CHECKING:
    from pathlib import Path

    from longca.compare.history import History, Line
    from longca.compare.journals import Busy, Comparison, Difference

NAMES = ["kernel", "mask", "length", "pass", "shape"]  # the columns that name a cell
COLUMNS = ["verdict", *NAMES, "A", "B", "time", "interval", "why"]
UNCHANGED = (Verdict.SAME, Verdict.UNMEASURED)
DECIDED = f"only changes by a factor of {FAR:g} or more are decided"
NO_PLATEAU = "they are part of no plateau"

# fields that columns show; a digest says little, so it is the last resort
SHOWN = ("asked", "mask", "params", "seqlen", "pass", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "ranks", "method")
IN_COLUMNS = (*SHOWN, "mask_digest")


def describe_cells(cells: Sequence[Cell]) -> list[list[str]]:
    """As `describe_all`; a cell that was asked for by two names has the name of what ran."""
    kernels = [cell.before.asked if cell.before.asked == cell.after.asked else cell.before.label for cell in cells]
    return describe_all([cell.before for cell in cells], kernels)


def describe_all(records: Sequence[Record], kernels: Sequence[str] | None = None) -> list[list[str]]:
    """The columns that name each cell in a table. Rows that would read the same also have the fields in which they differ."""
    names = kernels or [record.asked for record in records]
    rows = [describe(record, name) for record, name in zip(records, names, strict=True)]
    alike = grouped(range(len(rows)), lambda index: tuple(rows[index]))
    for group in (group for group in alike.values() if len(group) > 1):
        values = [identity_fields(records[index]) for index in group]
        differing = [name for name in values[0] if name not in IN_COLUMNS and len({own.get(name) for own in values}) > 1]
        for index, own in zip(group, values, strict=True):
            rows[index][-1] = " ".join([rows[index][-1], *(f"{name} {own.get(name)}" for name in differing or ["mask_digest"])])
    return rows


def describe(record: Record, kernel: str) -> list[str]:
    """The columns that name a cell."""
    params = f"({','.join(f'{name}={value}' for name, value in sorted(record.built.params.items()))})" if record.built.params else ""
    problem = record.problem
    name = f"{kernel} {record.method} on {problem.ranks}" if record.method else kernel
    return [name, problem.mask + params, format_size(problem.seqlen), problem.pass_.value, shape(problem)]


def shape(problem: Problem) -> str:
    return f"{format_heads(asdict(problem))}x{format_dims(asdict(problem))} {problem.dtype}"


def ratio_columns(ratio: Ratio | None) -> dict[str, float | None]:
    """The ratio and its interval; None where there is none, or too few samples for one."""
    if ratio is None:
        return dict.fromkeys(("ratio", "low", "high"))
    return {"ratio": ratio.value, "low": None if ratio.few else ratio.low, "high": None if ratio.few else ratio.high}


def change(ratio: Ratio | None) -> tuple[str, str]:
    """The change and its interval in percent of time: +5.0 % is slower."""
    if ratio is None:
        return "", ""
    value = f"{100 * (ratio.value - 1):+.1f} %"
    if ratio.few:
        return value, "too few samples"
    return value, f"{100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f} %{' (drift)' if ratio.drifting else ''}"


def why(remark: Remark | None) -> str:
    """Why there is no verdict, or no time; empty without a remark."""
    if remark is None:
        return ""
    values = remark.values
    match remark.kind:
        case Doubt.FEW_SAMPLES:
            return f"fewer than {values['enough']} samples on a side"
        case Doubt.CROSSES:
            return f"the interval crosses the threshold of {100 * values['threshold']:g} %"
        case Doubt.CLOCK:
            return f"the SM clock explains it ({values['before']:.0f} and {values['after']:.0f} MHz)"
        case Doubt.UNTRUSTED:
            noisy, busy = (" and ".join(values[name]) for name in ("noisy", "busy"))
            return "; ".join([*([f"{noisy} noisy"] if noisy else []), *([f"busy machine in {busy}"] if busy else [])])
        case Doubt.DOUBTFUL:
            return "; ".join(f"{side} is doubtful: {reason}" for side, reason in values.items())
        case Doubt.FAILED:
            return " ".join(values["reason"].split())
    return remark.kind.value


def comparison(compared: Comparison, everything: bool) -> list[Part]:
    """The cells that changed, or all; what only one journal has; and the counts."""
    rows = [
        [cell.verdict.value, *name, _time(cell.before), _time(cell.after), *change(cell.ratio), why(cell.why)]
        for cell, name in zip(compared.cells, describe_cells(compared.cells), strict=True)
        if everything or cell.verdict not in UNCHANGED
    ]
    parts: list[Part] = []
    if rows:
        used = len(COLUMNS) if any(row[-1] for row in rows) else len(COLUMNS) - 1
        parts = [Table("", COLUMNS[:used], [row[:used] for row in rows]), ""]
    for side, records in (("A", compared.only_before), ("B", compared.only_after)):
        parts += [f"only in {side}: {' '.join(row)}" for row in describe_all(records)]
    parts += [f"compared anyway: {unlike(each)}" for each in compared.differences]
    parts += [*dict.fromkeys(map(busy, compared.busy))] or advice(compared.cells)  # a journal beside itself is busy once
    counts = ", ".join(f"{count} {verdict}" for verdict, count in compared.counts.items() if count)
    only = f"; {plural(len(compared.only_before), 'cell')} only in A, {len(compared.only_after)} only in B"
    return [*parts, counts + (only if compared.only_before or compared.only_after else "")]


def _time(record: Record) -> str:
    if not record.ok:
        return record.status.value
    return f"{record.times.median:.4g} ms{' noisy' if is_too_noisy(record) else ''}"


def advice(cells: Iterable[Cell]) -> list[str]:
    """What would decide cells that their samples leave open."""
    unclear = [cell.ratio for cell in cells if cell.verdict is Verdict.UNCLEAR and cell.ratio]
    few, drifting = sum(ratio.few for ratio in unclear), sum(ratio.drifting for ratio in unclear)
    more = "measure them again with more samples: --clock least=20, or a larger --budget"
    sentences = [f"{plural(few, 'cell')} with too few samples (fewer than {ENOUGH_SAMPLES}): {more}."] if few else []
    drift = "neighbouring samples are alike, so only a change larger than this drift counts"
    return sentences + ([f"{plural(drifting, 'cell')} with (drift): {drift}; {more}, on a quiet machine."] if drifting else [])


def busy(journal: Busy, decided: str = DECIDED) -> str:
    """Why no cell of a journal is trusted, and what is decided nevertheless."""
    advice = "measure again on a quiet machine or with a larger --budget"
    count = part_of(journal.noisy, journal.measured, "cell")
    return f"{journal.name}: {count} noisy, so none of its cells is trusted: {decided}; {advice}."


def difference(found: Difference) -> str:
    pairs = sorted((_value(one), _value(other)) for one, other in found.values)
    return f"{found.title} ({', '.join(f'{one} and {other}' for one, other in pairs)})"


def unlike(found: Difference) -> str:
    return f"{' and '.join(found.sides)} differ in {difference(found)}"


def _value(value: Any) -> str:
    if value is None:
        return "not recorded"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(inner)}" for name, inner in sorted(value.items())) or "none"
    return f"{value:g}" if isinstance(value, int | float) else str(value) or "none"


def history(found: History, everything: bool) -> list[Part]:
    """The cells that changed, or all, with a line for each journal; and how many there are."""
    shown = [
        [*name, row["commit"], "" if row["ms"] is None else f"{row['ms']:.4g} ms", _percent(row["ratio"]), row["step"]]
        for line, name in zip(found.lines, describe_all([line.cell for line in found.lines]), strict=True)
        if everything or line.changed
        for row in found.rows_of(line, name)
    ]
    parts: list[Part] = [Table("", [*NAMES, "commit", "time", "change", "step"], shown), ""] if shown else []
    parts += [f"compared anyway: {unlike(each)}" for each in found.differences]
    parts += [busy(each, NO_PLATEAU) for each in found.busy]
    count = sum(len(line.left_out) for line in found.lines)
    if count and not found.busy:
        total = plural(sum(record is not None for line in found.lines for record in line.records), "time")
        hint = "" if everything else "; --all shows why"
        parts.append(f"{count} of {total} were not compared: they are missing, doubtful, noisy or of too few samples{hint}.")
    changed, slower = sum(line.changed for line in found.lines), sum(line.slower for line in found.lines)
    cells, journals = plural(len(found.lines), "cell"), plural(len(found.commits), "journal")
    return [*parts, f"{cells} in {journals}: {changed} changed, {slower} of them to slower"]


def step(line: Line, number: int) -> str:
    """What happened to a cell in one journal of a history."""
    words = []
    if number in line.steps:
        verdict, ratio = line.steps[number]
        value, interval = change(ratio)
        words.append(f"{verdict} {value} ({interval})")
    record = line.records[number]
    if number in line.left_out and record is not None:
        words.append(line.left_out[number].value if record.ok else f"{record.status}: {' '.join(record.reason.split())}")
    return "; ".join(words)


def _percent(ratio: float | None) -> str:
    return "" if ratio is None else f"{100 * (ratio - 1):+.1f} %"


def unfinished(left: int) -> str:
    return f"{plural(left, 'cell')} of this run are left, so it is not yet compared."


def not_stored(faults: int, known: bool) -> str:
    why = f"{plural(faults, 'cell')} failed" if faults else "nothing was measured"
    return f"this run is not stored, because {why}; {'the old one is kept' if known else 'there is none yet'}."


def stored(folder: Path, known: bool, timed: Sequence[Record]) -> str:
    """That a run is the baseline now, and whether it is a good one."""
    how = f"replaced by this run ({folder})" if known else f"there was none; this run is stored as the baseline ({folder})"
    noisy = sum(map(is_too_noisy, timed))
    warning = f" warning: {part_of(noisy, len(timed), 'time')} noisy, so verdicts there will be UNCLEAR." if noisy else ""
    return f"{how}; --renew-baseline replaces it.{warning}"
