"""The tables of ranks that share one H200, from the journals below results/h200-shared, beside published charts and the simulation."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from functools import cache
from statistics import median

from measured_tables import PASSES, ROOT, journal

from longca.results.problem import Pass, Sharing
from longca.results.record import Record, Status
from longca.results.tables import markdown_table

RANKS, SEQLEN = 8, 65536
METHODS = ("ulysses", "ring_p2p", "ring_allgather", "usp", "loongtrain", "magi", "hybrid_dcp", "halo", "burst", "mesh")
SHORT = {"sliding_window": "window", "global_sliding_window": "global window", "sliding_window_causal": "window causal"}
FIRST = "ulysses"  # that the others are compared with
Cells = dict[tuple[str, str, Pass], Record]  # by method, mask and pass


@cache
def cells(ranks: int = RANKS, nodes: int = 1, name: str = "ranks") -> Cells:
    """The records of so many ranks, that pretend to be so many nodes, without documents of chosen lengths."""
    sharing = Sharing(ranks=8 if nodes > 1 else ranks, nodes=nodes)
    own = [record for record in journal(f"h200-shared/{name}").records if record.problem.sharing == sharing and record.split]
    chosen = [record for record in own if record.problem.ranks == ranks and record.problem.documents is None]
    return {(str(record.method), record.problem.mask, record.problem.pass_): record for record in chosen}


def speeds() -> str:
    """TFLOP/s per rank: a row per mask, a column per method."""
    return _table(cells())


def nodes() -> str:
    return _table(cells(nodes=2))


def scaling() -> str:
    """A row per mask and number of ranks, 8K tokens each."""
    masks = _masks(cells(2))
    rows = [[f"{mask}, {ranks} ranks", *_speeds(cells(ranks), mask)] for mask in masks for ranks in (2, 4, 8)]
    return markdown_table(["", *METHODS], rows)


def _table(found: Cells) -> str:
    return markdown_table(["", *METHODS], [[SHORT.get(mask, mask), *_speeds(found, mask)] for mask in _masks(found)])


def _masks(found: Cells) -> list[str]:
    return list(dict.fromkeys(mask for _, mask, _ in found))


def _speeds(found: Cells, mask: str) -> list[str]:
    return [_both(lambda pass_, method=method: _speed(found.get((method, mask, pass_)))) for method in METHODS]  # type: ignore[misc]


def _speed(record: Record | None) -> str:
    if record is None or record.status is not Status.OK:
        return "-"
    return f"{record.speed:.0f}" if record.speed >= 9.95 else f"{record.speed:.1f}"


def _both(cell: Callable[[Pass], str]) -> str:
    parts = [cell(pass_) for pass_ in PASSES]
    return "-" if set(parts) == {"-"} else "/".join(parts)


def published() -> str:
    """Speeds relative to ulysses, on causal, here and in the published charts of 8 H100."""
    own = cells()
    with (ROOT / "results/published/h100_cp.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["mask"] == "causal" and row["gpus"] == "8"]
    charts = {(row["method"], Pass(row["pass"])): float(row["tflops_per_gpu"]) for row in rows}
    methods = [method for method in METHODS if (method, Pass.FWD) in charts and method != FIRST]

    def ratios(speed: Callable[[str, Pass], float]) -> list[str]:
        return ["/".join(f"{speed(method, pass_) / speed(FIRST, pass_):.2f}" for pass_ in PASSES) for method in methods]

    here = ["8 ranks on one H200", *ratios(lambda method, pass_: own[method, "causal", pass_].speed)]
    there = ["8 H100, published", *ratios(lambda method, pass_: charts[method, pass_])]
    return markdown_table(["causal, relative to ulysses", *methods], [here, there])


def overlap() -> str:
    """Per method: compute / exposed transfers / hidden part of transfers / waiting, in percent, forward and backward."""
    own = cells(name="traced")
    masks = _masks(own)
    head = ["", *(f"{mask}, {words}" for mask in masks for words in ("forward", "backward"))]
    return markdown_table(
        head, [[method, *(_parts(own.get((method, mask, pass_))) for mask in masks for pass_ in PASSES)] for method in METHODS]
    )


def _parts(record: Record | None) -> str:
    over = None if record is None else record.over_ranks
    if over is None or over.compute_share is None:
        return "-"
    exposed, hidden = over.exposed_share or 0.0, over.hidden_share or 0.0
    shares = (over.compute_share, exposed, hidden, max(0.0, 1 - over.compute_share - exposed))
    return " / ".join(f"{100 * share:.0f}" for share in shares)


def about() -> str:
    """How many cells there are, how steady they are, and what ranks take."""
    records = [record for record in journal("h200-shared/ranks").records if record.split]
    timed = [record for record in records if record.ok]
    spread = 100 * median(record.times.spread or 0.0 for record in timed)
    outside = [record.memory.outside_gib for record in timed if record.memory and record.memory.outside_gib is not None]
    refused = sum(record.status is Status.UNSUPPORTED for record in records)
    versions = sorted({str(record.over_ranks.nccl) for record in timed if record.over_ranks})
    return (
        f"{len(records)} cells: {len(timed)} measured and checked, {refused} refused, {_others(records)}. The median of their spreads is "
        f"±{spread:.1f} %. NCCL {', '.join(versions)}. Beside torch's allocator a rank takes {min(outside):.1f} to {max(outside):.1f} GiB."
    )


def _others(records: Iterable[Record]) -> str:
    failed = [record for record in records if record.status not in (Status.OK, Status.UNSUPPORTED)]
    return f"{len(failed)} failed" if failed else "none failed"


TABLES = {
    "shared-about": about,
    "shared-speeds": speeds,
    "shared-published": published,
    "shared-overlap": overlap,
    "shared-scaling": scaling,
    "shared-nodes": nodes,
}
