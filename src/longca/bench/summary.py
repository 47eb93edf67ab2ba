"""What a run found, in two tables: the fastest kernel per mask and length, and what failed and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from longca.text import format_size

Record = dict[str, Any]


class Table(NamedTuple):
    title: str
    columns: list[str]
    rows: list[list[str]]


def label(record: Record) -> str:
    """A kernel and its variant; before it the method and its grid, where there is one."""
    kernel = f"{record['kernel']}:{record['variant']}" if record["variant"] else str(record["kernel"])
    return f"{record['method']} {record['grid']} {kernel}" if record.get("method") else kernel


def fastest(records: Iterable[Record]) -> list[Table]:
    """Per pass and shape: for each mask a row, for each length the fastest kernel and its TFLOP/s."""
    best: dict[tuple[str, str], dict[tuple[str, int], Record]] = {}
    for record in records:
        if record["status"] != "ok":
            continue
        shape = f"{record['heads_q']}:{record['heads_kv']} heads, {record['head_dim']}, {record['dtype']}"
        shape += f", {record['ranks']} ranks, each" if record.get("ranks") else ""
        cells = best.setdefault((record["pass"], shape), {})
        place = (record["mask"], record["seqlen"])
        if place not in cells or record["ms"]["median"] / record["flops"] < cells[place]["ms"]["median"] / cells[place]["flops"]:
            cells[place] = record
    tables = []
    for (which, shape), cells in best.items():
        lengths = sorted({seqlen for _, seqlen in cells})
        masks = list(dict.fromkeys(mask for mask, _ in cells))
        rows = [[mask, *(_winner(cells.get((mask, seqlen))) for seqlen in lengths)] for mask in masks]
        tables.append(Table(f"fastest, {which}, {shape} (TFLOP/s)", ["mask", *map(format_size, lengths)], rows))
    return tables


def _winner(record: Record | None) -> str:
    return "" if record is None else f"{label(record)} {speed(record['tflops'])}"


def speed(tflops: float) -> str:
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.3g}"


def failures(records: Iterable[Record]) -> Table:
    """How often each kernel gave each reason for not being measured."""
    counted = Counter((label(record), record["status"], record["reason"]) for record in records if record["status"] != "ok")
    rows = [[kernel, status, str(count), reason] for (kernel, status, reason), count in sorted(counted.items())]
    return Table("not measured", ["kernel", "status", "cells", "why"], rows)


def counts(records: Iterable[Record]) -> str:
    counted = Counter(record["status"] for record in records)
    return ", ".join(f"{count} {status}" for status, count in counted.most_common()) or "nothing"
