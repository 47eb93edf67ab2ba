"""The tables of ranks that share one H200, from the journal results/h200-shared/ranks, beside published charts and the simulation."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from functools import cache
from statistics import median

import numpy as np
from measured_tables import PASSES, ROOT, journal

from longca.results.problem import Pass
from longca.results.record import Record, Status
from longca.results.tables import markdown_table
from longca.simulate.against import Pair, against
from longca.simulate.cluster import find

CLUSTER = "h200-shared-8"
CALIBRATED = ("causal", "causal_document", "full", "sliding_window", "sliding_window_causal")  # its compute is from their records
ORDERED = 0.9  # rank correlation from which the order of methods is called right
FIRST = "ulysses"  # that the others are compared with
SIGNIFICANT = 9.95  # from which speed on no decimal is shown


@cache
def cells() -> dict[tuple[str, str, Pass], Record]:
    """The records by method, mask and pass."""
    return {(str(record.method), record.problem.mask, record.problem.pass_): record for record in journal("h200-shared/ranks").records}


@cache
def simulated_pairs() -> list[Pair]:
    return against(ROOT / "results/h200-shared", find(CLUSTER)[1])


def methods() -> list[str]:
    return list(dict.fromkeys(method for method, _, _ in cells()))


def masks() -> list[str]:
    return list(dict.fromkeys(mask for _, mask, _ in cells()))


def speeds() -> str:
    """TFLOP/s per rank: a row per mask, a column per method."""

    def both(method: str, mask: str) -> str:
        records = [cells().get((method, mask, pass_)) for pass_ in PASSES]
        return "/".join(_speed(record) for record in records if record and record.ok) or ("-" if records[0] else "")

    return markdown_table(["", *methods()], [[mask, *(both(method, mask) for method in methods())] for mask in masks()])


def _speed(record: Record) -> str:
    return f"{record.speed:.0f}" if record.speed >= SIGNIFICANT else f"{record.speed:.1f}"


def published() -> str:
    """Speeds relative to ulysses, on causal, here and in the published charts of 8 H100."""
    with (ROOT / "results/published/h100_cp.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["mask"] == "causal" and row["gpus"] == "8"]
    charts = {(row["method"], Pass(row["pass"])): float(row["tflops_per_gpu"]) for row in rows}
    compared = [method for method in methods() if (method, Pass.FWD) in charts and method != FIRST]

    def ratios(speed: Callable[[str, Pass], float]) -> list[str]:
        return ["/".join(f"{speed(method, pass_) / speed(FIRST, pass_):.2f}" for pass_ in PASSES) for method in compared]

    here = ["8 ranks on one H200", *ratios(lambda method, pass_: cells()[method, "causal", pass_].speed)]
    there = ["8 H100, published", *ratios(lambda method, pass_: charts[method, pass_])]
    return markdown_table(["causal, relative to ulysses", *compared], [here, there])


def simulated() -> str:
    """The errors of the simulated times on masks that the cluster was made from, and on the others, and how far the order is right."""
    orders = [
        _rank_correlation([pair for pair in simulated_pairs() if (pair.record.problem.mask, pair.record.problem.pass_) == (mask, pass_)])
        for mask in masks()
        for pass_ in PASSES
    ]
    both = [[abs(pair.error) for pair in simulated_pairs() if (pair.record.problem.mask in CALIBRATED) is known] for known in (False, True)]
    table = [
        [name, str(len(sizes)), f"{100 * median(sizes):.0f} %", f"{100 * np.quantile(sizes, 0.9):.0f} %"]
        for name, sizes in zip((f"the {len(masks()) - len(CALIBRATED)} other masks", "masks of the calibration"), both, strict=True)
    ]
    right = sum(order >= ORDERED for order in orders)
    order = (
        f"The rank correlation of the methods' times, for each mask and pass, is {median(orders):.2f} in the median, and at least "
        f"{ORDERED} in {right} of {len(orders)}; the lowest is {min(orders):.2f}."
    )
    return markdown_table(["", "cells", "median error", "nine in ten within"], table) + "\n\n" + order


def _rank_correlation(pairs: Sequence[Pair]) -> float:
    """Spearman's, of measured and simulated times."""
    ranks = [np.argsort(np.argsort(values)) for values in ([pair.record.times.median for pair in pairs], [pair.ms for pair in pairs])]
    return float(np.corrcoef(*ranks)[0, 1])


def about() -> str:
    """How many cells there are, how steady they are, and what ranks take."""
    records = list(cells().values())
    timed = [record for record in records if record.ok]
    refused = sum(record.status is Status.UNSUPPORTED for record in records)
    spread = 100 * median(record.times.spread or 0.0 for record in timed)
    outside = [record.memory.outside_gib for record in timed if record.memory and record.memory.outside_gib is not None]
    versions = sorted({str(record.over_ranks.nccl) for record in timed if record.over_ranks})
    return (
        f"{len(records)} cells: {len(timed)} measured and checked, {refused} refused. The median of their spreads is ±{spread:.1f} %. "
        f"NCCL {', '.join(versions)}. Beside torch's allocator a rank takes {min(outside):.1f} to {max(outside):.1f} GiB of its GPU."
    )


TABLES = {
    "shared-about": about,
    "shared-speeds": speeds,
    "shared-published": published,
    "shared-simulated": simulated,
}
