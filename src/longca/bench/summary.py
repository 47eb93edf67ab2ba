"""What a run found, in two tables: the fastest kernel per mask and length, and what failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from longca.masks import SOURCES, block_names, dense_of
from longca.text import format_shape, format_size, printable

Record = dict[str, Any]


BY_RULE = "left out by rule"  # the shown status of what was never tried: kernels of quadratic memory beyond some length


class Table(NamedTuple):
    title: str
    columns: list[str]
    rows: list[list[str]]


def shown_status(record: Record) -> str:
    """The status that a reader sees. What a rule left out was never tried, so nobody knows whether it is supported."""
    return BY_RULE if record["status"] == "unsupported" and record.get("limited") else str(record["status"])


def label(record: Record) -> str:
    """A kernel and its variant; before it the method and its grid, where there is one."""
    kernel = f"{record['kernel']}:{record['variant']}" if record["variant"] else str(record["kernel"])
    return f"{record['method']} {record['grid']} {kernel}" if record.get("method") else kernel


def shape(record: Record, environments: Mapping[str, Record]) -> str:
    """What must be the same for two speeds to be compared, beside the mask and the pass."""
    text = f"{format_shape(record)}, {record['dtype']}"
    text += ", deterministic" if record["deterministic"] else ""
    text += f", {record['ranks']} ranks, each" if record.get("ranks") else ""
    text += f", simulated on {record['simulated']}" if record.get("simulated") else ""
    device = environments.get(record["env"], {}).get("device")
    return f"{text}, {device}" if device else text


Kernels = dict[str, dict[str, Record]]  # records by kernel, then by the digest of the mask
Dense = dict[tuple[str, int], float]  # milliseconds by dense mask and length


def with_params(record: Record) -> str:
    """A mask with its source and its parameters. That a block pattern has one head per KV head goes without saying."""
    usual = ("heads", record["heads_kv"])
    source = [] if _source(record) == "random" else [_source(record)]
    return " ".join([record["mask"], *source, *(f"{name}={value}" for name, value in record["params"].items() if (name, value) != usual)])


def _source(record: Record) -> str:
    return record.get("source") or "random"


def is_sparse(record: Record) -> bool:
    return record["mask"] in block_names()


def mask_names(records: Sequence[Record]) -> list[str]:
    """For each record the name of its mask. Parameters of block patterns, and those of which one seed comes with several, are part of
    it."""
    chosen: dict[tuple[Any, ...], set[str]] = {}
    for record in records:
        chosen.setdefault((record["mask"], record["seqlen"], record["seed"]), set()).add(with_params(record))
    listed = {mask for (mask, _, _), several in chosen.items() if len(several) > 1}
    return [with_params(record) if is_sparse(record) or record["mask"] in listed else str(record["mask"]) for record in records]


def places(records: Sequence[Record]) -> dict[tuple[str, int], Kernels]:
    """Records of one table by the mask's name and length."""
    found: dict[tuple[str, int], Kernels] = {}
    for record, name in zip(records, mask_names(records), strict=True):
        measured = found.setdefault((name, record["seqlen"]), {}).setdefault(label(record), {})
        before = measured.get(record["mask_digest"])
        if before is None or (record["tflops"] or 0) > (before["tflops"] or 0):
            measured[record["mask_digest"]] = record
    return found


def fastest(records: Iterable[Record], environments: Mapping[str, Record] | None = None) -> list[Table]:
    """Per pass and shape: for each mask a row, for each length the fastest kernel and its TFLOP/s."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["status"] == "ok":
            groups.setdefault((record["pass"], shape(record, environments or {})), []).append(record)
    tables = []
    for (which, about), group in groups.items():
        cells, dense = places(group), dense_ms(group)
        lengths = sorted({seqlen for _, seqlen in cells})
        rows = [
            [name, *(_winner(cells.get((name, seqlen), {}), dense) for seqlen in lengths)]
            for name in dict.fromkeys(name for name, _ in cells)
        ]
        unit = "TFLOP/s" + ("; x: times as fast as the dense mask" if dense and any(map(is_sparse, group)) else "")
        tables.append(Table(f"fastest, {which}, {about} ({unit})", ["mask", *map(format_size, lengths)], rows))
    return tables


def dense_ms(group: Iterable[Record]) -> Dense:
    """The least time that the dense masks take: what block patterns must stay below to be worth it."""
    found: Dense = {}
    for record in group:
        place = record["mask"], record["seqlen"]
        if record["mask"] in map(dense_of, SOURCES) and record.get("ms"):
            found[place] = min(record["ms"]["median"], found.get(place, float("inf")))
    return found


def _winner(kernels: Kernels, dense: Dense) -> str:
    """The fastest of those that were measured on the same masks: on as many as any kernel was."""
    if not kernels:
        return ""
    shared = max(kernels.values(), key=len).keys()
    medians = {name: median(found[digest]["tflops"] for digest in shared) for name, found in kernels.items() if found.keys() >= shared}
    best = max(medians, key=lambda name: medians[name])
    return f"{best} {speed(medians[best])}{_gain(kernels[best].values(), dense)}" + (f" (n={len(shared)})" if len(shared) > 1 else "")


def _gain(found: Iterable[Record], dense: Dense) -> str:
    places = [((dense_of(_source(record)), record["seqlen"]), record) for record in found if is_sparse(record)]
    gains = [dense[place] / record["ms"]["median"] for place, record in places if place in dense]
    return f" {median(gains):.3g}x" if gains else ""


def typical(found: Mapping[str, Record]) -> str:
    """What one kernel did on the masks of one name and length: the median speed, of how many masks, and whether it is noisy; or its
    statuses."""
    timed = [record for record in found.values() if record["status"] == "ok"]
    if not timed:
        return ", ".join(dict.fromkeys(map(shown_status, found.values())))
    of = f" of {len(found)}" if len(timed) < len(found) else ""
    noise = " ~" if any(record.get("noisy") for record in timed) else ""
    return speed(median(record["tflops"] for record in timed)) + (f" (n={len(timed)}{of})" if len(found) > 1 else "") + noise


def speed(tflops: float) -> str:
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.3g}"


def failures(records: Iterable[Record]) -> Table:
    """How often each kernel gave each reason for not being measured."""
    counted = Counter((label(record), shown_status(record), record["reason"]) for record in records if record["status"] != "ok")
    rows = [[kernel, status, str(count), printable(reason)] for (kernel, status, reason), count in sorted(counted.items())]
    return Table("not measured", ["kernel", "status", "cells", "why"], rows)


def counts(records: Iterable[Record]) -> str:
    counted = Counter(map(shown_status, records))
    return ", ".join(f"{count} {status}" for status, count in counted.most_common()) or "nothing"
