"""How one kernel stands against the best of all others, on every mask and length of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from longca.bench.summary import Kernels, Record, Table, places, shape, speed, typical
from longca.text import format_size


def standing(records: Iterable[Record], kernel: str, environments: Mapping[str, Record] | None = None) -> list[Table]:
    """Per pass and shape: for each mask a row, for each length the kernel's TFLOP/s and how many times those of the best other one."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if not record.get("method"):
            groups.setdefault((record["pass"], shape(record, environments or {})), []).append(record)
    tables = []
    for (which, about), group in groups.items():
        cells = places(group)
        lengths = sorted({seqlen for _, seqlen in cells})
        found = {place: _against(kernels, kernel) for place, kernels in cells.items()}
        rows = [[name, *(found.get((name, seqlen), "") for seqlen in lengths)] for name in dict.fromkeys(name for name, _ in cells)]
        if any("x of " in cell for cell in found.values()):
            title = f"{kernel} against the best other, {which}, {about} (TFLOP/s, and how many times those of the other)"
            tables.append(Table(title, ["mask", *map(format_size, lengths)], rows))
    return tables


def _against(kernels: Kernels, kernel: str) -> str:
    """On the masks that it was measured on; of its variants the fastest. Its statuses, where it has no time."""
    mine = {name: found for name, found in kernels.items() if name.partition(":")[0] == kernel}
    timed = {name: {digest: one for digest, one in found.items() if one["status"] == "ok"} for name, found in kernels.items()}
    own = max((timed[name] for name in mine if timed[name]), key=_typical, default=None)
    if own is None:
        return ", ".join(dict.fromkeys(typical(found) for found in mine.values()))
    others = {name: _typical(timed[name], own) for name in timed if name not in mine and timed[name].keys() >= own.keys()}
    best = max(others, key=lambda name: others[name], default=None)
    return speed(_typical(own)) + (f" {_typical(own) / others[best]:.2f}x of {best}" if best else "")


def _typical(found: Mapping[str, Record], masks: Iterable[str] | None = None) -> float:
    return float(median(found[digest]["tflops"] for digest in (found if masks is None else masks)))
