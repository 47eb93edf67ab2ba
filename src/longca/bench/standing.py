"""How one kernel stands against the best of all others, on every mask and length of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

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
        rows = [
            [name, *(found.get((name, seqlen), NOTHING).text for seqlen in lengths)] for name in dict.fromkeys(name for name, _ in cells)
        ]
        if any(stand.compared for stand in found.values()):
            title = f"{kernel} against the best other, {which}, {about} (TFLOP/s, and how many times those of the other; ~ noisy)"
            tables.append(Table(title, ["mask", *map(format_size, lengths)], rows))
    return tables


class Stand(NamedTuple):
    text: str
    compared: bool  # with another kernel


NOTHING = Stand("", False)


def _against(kernels: Kernels, kernel: str) -> Stand:
    """On the masks it was measured on; of its variants the one with most masks, then the fastest. Where it has no time, its statuses."""
    mine = {name: found for name, found in kernels.items() if name.partition(":")[0] == kernel}
    timed = {name: {digest: one for digest, one in found.items() if one["status"] == "ok"} for name, found in kernels.items()}
    own = max((timed[name] for name in mine if timed[name]), key=lambda found: (len(found), _typical(found)), default=None)
    if own is None:
        return Stand(", ".join(dict.fromkeys(typical(found) for found in mine.values())), False)
    others = {name: _typical(timed[name], own) for name in timed if name not in mine and timed[name].keys() >= own.keys()}
    best = max(others, key=lambda name: others[name], default=None)
    mark = " ~" if any(one.get("noisy") for one in [*own.values(), *(timed[best].values() if best else ())]) else ""
    ahead = f" {_typical(own) / others[best]:.2f}x of {best}" if best else ""
    return Stand(f"{speed(_typical(own))}{ahead}{mark}", best is not None)


def _typical(found: Mapping[str, Record], masks: Iterable[str] | None = None) -> float:
    return float(median(found[digest]["tflops"] for digest in (found if masks is None else masks)))
