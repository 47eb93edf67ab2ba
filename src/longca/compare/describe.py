"""The words of a comparison: names of cells, changes, and what would decide unclear ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from msgspec.structs import asdict

from longca.compare.journals import Comparison
from longca.compare.ratio import Ratio
from longca.compare.verdicts import Cell, Verdict
from longca.results.points import grouped
from longca.results.ranking import ENOUGH_SAMPLES
from longca.results.record import Record
from longca.text import format_size, plural

SHOWN = ("mask", "params", "seqlen", "pass_", "heads_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "ranks")  # by columns of the table


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
        values = [_further(records[index]) for index in group]
        differing = [name for name in values[0] if len({own[name] for own in values}) > 1]
        for index, own in zip(group, values, strict=True):
            words = [f"{name} {own[name]}" for name in differing]
            rows[index][-1] = " ".join([rows[index][-1], *(words or [f"mask_digest {records[index].built.digest}"])])
    return rows


def _further(record: Record) -> dict[str, object]:
    """What no column of the table shows, but two rows may differ by; a digest says little, so it is the last resort."""
    problem = {name: value for name, value in asdict(record.measured).items() if name not in SHOWN}
    split = record.split.shape if record.split else ""
    return problem | {"level": record.level, "grad": record.grad, "grid": split, "simulated": record.simulated}


def describe(record: Record, kernel: str) -> list[str]:
    """The columns that name a cell: kernel, mask, length, pass, shape."""
    params = f"({','.join(f'{name}={value}' for name, value in sorted(record.built.params.items()))})" if record.built.params else ""
    shape = _shape(
        record.problem.heads_q, record.problem.heads_kv, record.problem.head_dim, record.problem.head_dim_v, record.problem.dtype
    )
    name = f"{kernel} {record.method} on {record.problem.ranks}" if record.method else kernel
    return [name, record.problem.mask + params, _size(record.problem.seqlen), record.problem.pass_.value, shape]


_size = lru_cache(maxsize=1024)(format_size)


@lru_cache(maxsize=1024)
def _shape(heads_q: int, heads_kv: int, head_dim: int, head_dim_v: int, dtype: str) -> str:
    dims = str(head_dim) if head_dim == head_dim_v else f"{head_dim}/{head_dim_v}"
    return f"{heads_q}:{heads_kv}x{dims} {dtype}"


def change(ratio: Ratio | None) -> tuple[str, str]:
    """The change and its interval in percent of time: +5.0 % is slower."""
    if ratio is None:
        return "", ""
    value = f"{100 * (ratio.value - 1):+.1f} %"
    if not ratio.known:
        return value, "too few samples"
    return value, f"{100 * (ratio.low - 1):+.1f} to {100 * (ratio.high - 1):+.1f} %{' (drift)' if ratio.drifting else ''}"


def notes(comparison: Comparison) -> list[str]:
    """Sentences below the table: what was overlooked, why cells are unclear and what would decide them, and what is older."""
    overlooked = [f"compared anyway: A and B differ in {difference}" for difference in comparison.differences]
    older = [f"{plural(count, 'cell')} of {side}" for side, count in zip("AB", comparison.older, strict=True) if count]
    marked = [f"measured with an older version of the kernel's code than this LongCA has: {' and '.join(older)}."] if older else []
    return [*overlooked, *(comparison.busy or advice(comparison.cells)), *marked]


def advice(cells: Iterable[Cell]) -> list[str]:
    """What would decide cells that their samples leave open."""
    unclear = [cell.ratio for cell in cells if cell.verdict is Verdict.UNCLEAR and cell.ratio]
    few, drifting = sum(not ratio.known for ratio in unclear), sum(ratio.drifting for ratio in unclear)
    more = "measure them again with more samples: --clock least=20, or a larger --budget"
    sentences = [f"{plural(few, 'cell')} with too few samples (fewer than {ENOUGH_SAMPLES}): {more}."] if few else []
    drift = "neighbouring samples are alike, so only a change larger than this drift counts"
    return sentences + ([f"{plural(drifting, 'cell')} with (drift): {drift}; {more}, on a quiet machine."] if drifting else [])
