"""Tables of docs/measured.md and docs/sparse.md, from the journals and files under results/."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from longca import masks
from longca.results.naming import Row, rows
from longca.results.problem import Pass
from longca.results.ranking import Ranking, entries, rank
from longca.results.ratio import ENOUGH_SAMPLES
from longca.results.reading import Results, read
from longca.results.record import Record
from longca.results.tables import format_figure, markdown_table

ROOT = Path(__file__).parents[1]
PASSES = (Pass.FWD, Pass.BWD)
LONG = 32768
GROUPED = 8  # KV heads of 64:8
SIMULATED, GPUS = "simulated/h100-ib", (8, 64)
PUBLISHED = ("fa2", "fa3", "cudnn", "flex", "sdpa")
OURS = {"fa2": "fa2:torch", "sdpa": "sdpa:cudnn"}  # by the published name
BEYOND = ("fa4:native", "fa4:varlen", "fa4:bands", "band_cute", "cudnn_flex:rows", "cudnn_flex:documents")


@cache
def journal(name: str) -> Results:
    return read(ROOT / "results" / name)


@cache
def named(name: str) -> tuple[Row, ...]:
    return tuple(rows(journal(name)))


def json_rows(name: str) -> list[dict[str, Any]]:
    """The objects of a file below results/, one per line."""
    return [json.loads(line) for line in (ROOT / "results" / name).read_text().splitlines()]


def figure(record: Record) -> str:
    """The speed, with `~` where it is noisy or has few samples."""
    return marked(f"{record.speed:.0f}", bool(record.noisy), len(record.times.samples))


def marked(speed: str, noisy: bool, samples: int) -> str:
    return f"{speed}~" if noisy or samples < ENOUGH_SAMPLES else speed


def at_least(ratio: float) -> str:
    """Two digits, not rounded up."""
    return f"{math.floor(100 * ratio) / 100:.2f}"


def fastest_of(ranking: Ranking) -> str:
    """The fastest kernel, how many more are as fast, and its speed."""
    best, *others = ranking.equals
    more = f", {len(others)} more" if others else ""
    return f"{best.line}{more} {marked(format_figure(best.tflops), best.noisy, best.samples)}"


def published() -> str:
    """Published H100 figures, and ours on the H200 below them, of the passes that were published."""
    theirs = {(row["mask"], row["kernel"], row["pass"]): row for row in _published() if int(row["seqlen"]) == LONG}
    ours = {(r.problem.mask, r.label, r.problem.pass_.value): r for r in _timed("h200/paper-kernel") if r.problem.seqlen == LONG}
    passes = [pass_ for pass_ in PASSES if any(own == pass_.value for _, _, own in theirs)]
    table = []
    for mask in dict.fromkeys(mask for mask, _, _ in theirs):
        own = {kernel: [ours.get((mask, OURS.get(kernel, kernel), pass_.value)) for pass_ in passes] for kernel in PUBLISHED}
        beyond = [max((ours[mask, name, p.value] for name in BEYOND if (mask, name, p.value) in ours), key=_speed) for p in passes]
        table.append([mask, "H100", *(_theirs([theirs[mask, kernel, p.value] for p in passes]) for kernel in PUBLISHED), ""])
        table.append(["", "H200", *(_both(own[kernel]) for kernel in PUBLISHED), " / ".join(f"{r.label} {figure(r)}" for r in beyond)])
    return markdown_table(["mask", "", *PUBLISHED, "best newer kernel"], table)


def _theirs(pair: Sequence[dict[str, str]]) -> str:
    return "/".join(row["tflops"] for row in pair) if pair[0]["tflops"] else pair[0]["note"]


def peers() -> str:
    """FFA and FlashMask beside the fastest kernel from pip, forward/backward, on the same masks: equal digests only. The table has the
    masks of the published figures, and the sentence all."""
    table, shown, over = [], {row["mask"] for row in _published()}, list[str]()
    for mask in _masks("h200/paper-kernel"):
        here = [row for row in _peers() if row["mask"] == mask]
        digests = {row["mask_digest"] for row in here}
        if len(digests) != 1:
            raise SystemExit(f"peers32k.csv has {len(digests)} masks {mask}: figures of different masks are not set side by side.")
        passes = [_peers_of([row for row in here if row["pass"] == pass_.value]) for pass_ in PASSES]
        ffa, flashmask, fastest, ratio = zip(*passes, strict=True)
        over += ratio
        if mask in shown:
            table.append([mask, "/".join(ffa), "/".join(flashmask), " / ".join(fastest), "/".join(ratio)])
    return markdown_table(["mask", "FFA", "FlashMask V3", "best from pip", "over the better peer"], table) + (
        f"\n\nOn all twelve masks, the best kernel from pip is {min(over)} to {max(over)} times as fast as the better of the two."
    )


def _peers_of(rows_of_pass: list[dict[str, str]]) -> tuple[str, str, str, str]:
    """The speeds of FFA, of FlashMask and of the fastest kernel from pip, and the last over the faster peer."""
    speeds = {row["kernel"]: float(row["tflops"]) for row in rows_of_pass if row["kernel"] != "best"}
    texts = {row["kernel"]: marked(f"{float(row['tflops']):.0f}", row["noisy"] == "1", int(row["samples"])) for row in rows_of_pass}
    theirs = [speeds.pop(peer) for peer in ("ffa", "flashmask:torch")]
    fastest = max(speeds, key=lambda name: speeds[name])
    return texts["ffa"], texts["flashmask:torch"], f"{fastest} {texts[fastest]}", f"{speeds[fastest] / max(theirs):.2f}"


def sparse_pays() -> str:
    """How many times as fast as the dense mask block patterns are with grouped heads, and the kept ratio at which they would be as fast."""
    timed = [record for record in _timed("h200/paper-sparse") if record.problem.source == "random"]
    table = []
    for pass_ in PASSES:
        mine = [r for r in timed if (r.problem.seqlen, r.problem.heads_kv, r.problem.pass_) == (LONG, GROUPED, pass_)]
        dense = min(r.times.median for r in mine if r.problem.mask == "full")
        for size in (64, 128):
            uniform = [r for r in mine if r.problem.mask == "uniform_block" and r.built.params["b"] == size]
            best = {ratio: min((r for r in uniform if r.built.params["ratio"] == ratio), key=_ms) for ratio in (0.2, 0.5, 0.8)}
            gains = [f"{dense / best[ratio].times.median:.2f} {best[ratio].label}" for ratio in best]
            even = _even({ratio: record.times.median for ratio, record in best.items()}, dense)
            table.append([pass_.value, str(size), *gains, f"{even:.2f}"])
    return markdown_table(["pass", "block", "kept .2", "kept .5", "kept .8", "even at"], table)


def _even(ms: dict[float, float], dense: float) -> float:
    """The kept ratio at which the time is the dense one's, on the line through the two larger ratios."""
    return 0.5 + 0.3 * (dense - ms[0.5]) / (ms[0.8] - ms[0.5])


def planning() -> str:
    """What making the mask and planning cost beside a call on packed documents."""
    own = [r for r in _timed("h200/paper-kernel") if r.problem.seqlen == LONG and r.problem.mask == "causal_document"]
    plan_ms = {kernel: max(r.plan_ms or 0.0 for r in own if r.label == kernel) for kernel in {r.label for r in own}}
    calls = {kernel: [r.times.median for r in own if r.label == kernel] for kernel in plan_ms}
    fastest = min(sum(both) for both in calls.values() if len(both) == len(PASSES))
    made = median(r.build_ms or 0.0 for r in own)
    listed = ", ".join(f"{kernel} {plan_ms[kernel]:.1f}" for kernel in sorted(plan_ms, key=lambda kernel: plan_ms[kernel]))
    return f"Milliseconds: {listed}. Making the mask takes {made:.1f}, and the forward and backward of the fastest kernel {fastest:.1f}."


def methods() -> str:
    """The fastest methods of a forward and backward per mask and number of GPUs, simulated."""
    table = []
    named_rows = named(SIMULATED)
    for mask in _masks(SIMULATED):
        cells = []
        for gpus in GPUS:
            here = [row for row in named_rows if row.record.problem.mask == mask and row.record.problem.ranks == gpus]
            best = rank(entries(here, Pass.BOTH)).equals
            names = {standing.records[0].method or "" for standing in best}
            slower = sorted({row.record.method or "" for row in here} - names)
            shown = f"all but {', '.join(slower)}" if 0 < len(slower) < len(names) else ", ".join(sorted(names))
            cells.append(f"{shown}: {best[0].tflops:.0f}" if best else "")
        table.append([mask, *cells])
    return markdown_table(["mask", *(f"{gpus} GPUs" for gpus in GPUS)], table)


def _published() -> list[dict[str, str]]:
    with (ROOT / "results/published/h100_kernels.csv").open() as file:
        return list(csv.DictReader(file))


def _peers() -> list[dict[str, str]]:
    with (ROOT / "results/h200/peers32k.csv").open() as file:
        return list(csv.DictReader(file))


def _timed(name: str) -> list[Record]:
    return [record for record in journal(name).records if record.ok]


def _masks(name: str) -> list[str]:
    return in_order({record.problem.mask for record in journal(name).records})


def in_order(own: Collection[str]) -> list[str]:
    """These masks in the order in which `longca ls masks` has them."""
    return [mask for mask in masks.names() if mask in own]


def _both(records: Iterable[Record | None]) -> str:
    return joined([figure(record) if record else "-" for record in records])


def joined(shown: list[str]) -> str:
    """Forward/backward, and one dash for both."""
    return "-" if set(shown) == {"-"} else "/".join(shown)


def _speed(record: Record) -> float:
    return record.speed


def _ms(record: Record) -> float:
    return record.times.median


TABLES = {
    "published": published, "peers": peers, "sparse-pays": sparse_pays,
    "planning": planning, "methods": methods,
}  # fmt: skip
