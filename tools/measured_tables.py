"""The tables of docs/measured.md, from the journals and files under results/."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from statistics import median

from longca import masks
from longca.results.naming import Row, contests, rows
from longca.results.problem import Pass
from longca.results.ranking import ENOUGH_SAMPLES, Ranking, entries, rank, rank_rows
from longca.results.reading import Results, read
from longca.results.record import Record
from longca.results.tables import format_figure, markdown_table
from longca.text import format_size

ROOT = Path(__file__).parents[1]
PASSES = (Pass.FWD, Pass.BWD)
LENGTHS = (8192, 16384, 32768, 65536)
WITH_LONGEST = (*LENGTHS, 131072)
MAGI_LENGTHS = (4096, *WITH_LONGEST)
LONG, POWERED = 32768, 65536  # at the second, all kernels have the power of the moment
SPARSE_LENGTHS = (16384, 32768)  # of block patterns with all ratios
PUBLISHED = ("fa2", "fa3", "cudnn", "flex", "flashmask", "sdpa", "ffa")
OURS = {"fa2": "fa2:torch", "flashmask": "", "sdpa": "sdpa:cudnn", "ffa": ""}  # by the published name; empty: not in the journal
PEERS, WITHOUT_IDEAS = ("fa4", "fa4:bands", "fa3", "cudnn_flex"), "the fastest without them"  # in backward_ideas.jsonl
BEYOND = ("fa4:native", "fa4:varlen", "fa4:bands", "band_cute", "cudnn_flex:rows", "cudnn_flex:documents")


@cache
def journal(name: str) -> Results:
    return read(ROOT / "results" / name)


@cache
def named(name: str) -> tuple[Row, ...]:
    return tuple(rows(journal(name)))


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


def fastest(name: str, lengths: Sequence[int]) -> str:
    """The fastest kernels per mask and length: forward, then backward; kernels that are as fast stand beside it."""
    cells: dict[tuple[str, Pass, int], str] = {}
    for contest, own in contests(named(name)).items():
        ranking = rank_rows(own)
        if ranking.best:
            cells[contest.mask_name, contest.pass_, contest.seqlen] = fastest_of(ranking)
    table = [[mask, pass_.value, *(cells.get((mask, pass_, n), "") for n in lengths)] for mask in _masks(name) for pass_ in PASSES]
    return markdown_table(["mask", "pass", *map(format_size, lengths)], table)


def published(seqlen: int) -> str:
    """Published H100 figures, and ours on the H200 below them, of the passes that were published."""
    theirs = {(row["mask"], row["kernel"], row["pass"]): row for row in _published() if int(row["seqlen"]) == seqlen}
    ours = {(r.problem.mask, r.label, r.problem.pass_.value): r for r in _timed("h200/paper-kernel") if r.problem.seqlen == seqlen}
    passes = [pass_ for pass_ in PASSES if any(own == pass_.value for _, _, own in theirs)]
    table = []
    for mask in dict.fromkeys(mask for mask, _, _ in theirs):
        own = {kernel: [ours.get((mask, OURS.get(kernel, kernel), pass_.value)) for pass_ in passes] for kernel in PUBLISHED}
        beyond = [max((ours[mask, name, p.value] for name in BEYOND if (mask, name, p.value) in ours), key=_speed) for p in passes]
        table.append([mask, "H100", *(_theirs([theirs[mask, kernel, p.value] for p in passes]) for kernel in PUBLISHED), ""])
        table.append(["", "H200", *(_both(own[kernel]) for kernel in PUBLISHED), " / ".join(f"{r.label} {figure(r)}" for r in beyond)])
    return markdown_table(["mask", "", *PUBLISHED, "best newer kernel"], table)


def published_sparse() -> str:
    """Published H100 forwards on uniform blocks, and below them ours: of the same kernel, and of the fastest one."""
    ours: dict[tuple[int, float], dict[str, str]] = {}
    best: dict[tuple[int, float], Record] = {}
    for record in _timed("h200/paper-sparse"):
        if (record.problem.mask, record.problem.seqlen, record.problem.heads_kv, record.problem.pass_) == (
            "uniform_block",
            LONG,
            8,
            Pass.FWD,
        ) and record.problem.source == "random":
            place = int(record.built.params["b"]), float(record.built.params["ratio"])
            ours.setdefault(place, {})[record.kernel] = figure(record)
            best[place] = max(best.get(place, record), record, key=_speed)
    for row in _peers():
        if row["mask"] == "uniform_block" and row["kernel"] == "fa2_sparse" and row["pass"] == Pass.FWD.value:
            params = json.loads(row["params"])
            ours[params["b"], params["ratio"]]["fa2_sparse"] = marked(
                f"{float(row['tflops']):.0f}", row["noisy"] == "1", int(row["samples"])
            )
    with (ROOT / "results/published/h100_sparse.csv").open() as file:
        theirs = list(csv.DictReader(file))
    table = []
    for kernel, block in dict.fromkeys((row["kernel"], int(row["block"])) for row in theirs):
        own = {float(row["ratio"]): row["tflops"] for row in theirs if (row["kernel"], int(row["block"])) == (kernel, block)}
        table.append([kernel, str(block), "H100", *own.values()])
        table.append(["", "", "H200", *(ours[block, ratio].get(kernel, "-") for ratio in own)])
        table.append(["", "", "H200, fastest", *(f"{best[block, ratio].label} {figure(best[block, ratio])}" for ratio in own)])
    return markdown_table(["kernel", "block", "", "kept .2", "kept .5", "kept .8"], table)


def _theirs(pair: Sequence[dict[str, str]]) -> str:
    return "/".join(row["tflops"] for row in pair) if pair[0]["tflops"] else pair[0]["note"]


def artefacts() -> str:
    """FlexAttention where published figures were 2 to 7 TFLOP/s or out of memory."""
    wanted = ("sliding_window", "sliding_window_causal", "global_sliding_window", "block_causal_document")
    found = {(r.problem.mask, r.problem.seqlen, r.problem.pass_): r for r in _timed("h200/paper-kernel") if r.label == "flex"}
    table = []
    for mask in wanted:
        cells = []
        for n in LENGTHS:
            forward, backward = (found[mask, n, pass_] for pass_ in PASSES)
            memory = "-" if backward.peak_gib is None else f"{backward.peak_gib:.1f}"
            cells.append(f"{figure(forward)}/{figure(backward)}, {memory} GiB")
        table.append([mask, *cells])
    return markdown_table(["flex", *map(format_size, LENGTHS)], table)


def peers() -> str:
    """FFA and FlashMask beside the fastest kernel from pip, on the same masks: equal digests only."""
    own = [row for row in _peers() if int(row["seqlen"]) == LONG]
    table = []
    for mask in _masks("h200/paper-kernel"):
        for pass_ in PASSES:
            here = [row for row in own if row["mask"] == mask and row["pass"] == pass_.value]
            digests = {row["mask_digest"] for row in here}
            if len(digests) != 1:
                raise SystemExit(f"peers.csv has {len(digests)} masks {mask}: figures of different masks are not set side by side.")
            speeds = {row["kernel"]: float(row["tflops"]) for row in here}
            texts = {row["kernel"]: marked(f"{float(row['tflops']):.0f}", row["noisy"] == "1", int(row["samples"])) for row in here}
            others = {name: speeds.pop(name) for name in list(speeds) if name.startswith(("ffa", "flashmask"))}
            best = max(speeds, key=lambda name: speeds[name])
            ratio = speeds[best] / max(others.values())
            faster = [max((name for name in others if name.startswith(peer)), key=others.__getitem__) for peer in ("ffa", "flashmask")]
            table.append([mask, pass_.value, *map(texts.__getitem__, faster), f"{best} {texts[best]}", f"{ratio:.2f}"])
    return markdown_table(["mask", "pass", "FFA", "FlashMask V3", "best from pip", "over the better peer"], table)


def sparse_pays() -> str:
    """How many times as fast as the dense mask block patterns are, and the kept ratio at which they would be as fast."""
    timed = [record for record in _timed("h200/paper-sparse") if record.problem.source == "random"]
    table = []
    for seqlen, heads_kv, pass_ in product(SPARSE_LENGTHS, (8, 64), PASSES):
        mine = [r for r in timed if (r.problem.seqlen, r.problem.heads_kv, r.problem.pass_) == (seqlen, heads_kv, pass_)]
        dense = min(r.times.median for r in mine if r.problem.mask == "full")
        for size in (64, 128):
            uniform = [r for r in mine if r.problem.mask == "uniform_block" and r.built.params["b"] == size]
            best = {ratio: min((r for r in uniform if r.built.params["ratio"] == ratio), key=_ms) for ratio in (0.2, 0.5, 0.8)}
            gains = [f"{dense / best[ratio].times.median:.2f} {best[ratio].label}" for ratio in best]
            even = _even({ratio: record.times.median for ratio, record in best.items()}, dense)
            table.append([format_size(seqlen), f"64:{heads_kv}", pass_.value, str(size), *gains, f"{even:.2f}"])
    return markdown_table(["tokens", "heads", "pass", "block", "kept .2", "kept .5", "kept .8", "even at"], table)


def _even(ms: dict[float, float], dense: float) -> float:
    """The kept ratio at which the time is the dense one's, on the line through the two larger ratios."""
    return 0.5 + 0.3 * (dense - ms[0.5]) / (ms[0.8] - ms[0.5])


def planning() -> str:
    """What making the mask and planning cost beside a call on packed documents."""
    own = [r for r in _timed("h200/paper-kernel") if r.problem.seqlen == LONG and r.problem.mask == "causal_document"]
    every = [r for r in _timed("h200/paper-kernel") if r.problem.seqlen == LONG and r.plan_ms is not None]
    table = []
    for kernel in sorted({r.label for r in own}):
        plans = [r.plan_ms or 0.0 for r in every if r.label == kernel]
        here = {r.problem.pass_: r for r in own if r.label == kernel}
        call = sum(r.times.median for r in here.values())
        plan_ms = max(r.plan_ms or 0.0 for r in here.values())
        passes = "" if len(here) == len(PASSES) else " (backward)"
        table.append([kernel, f"{plan_ms:.1f}", f"{max(plans):.1f}", f"{call:.1f}{passes}", f"{plan_ms / call:.2f}"])
    made = median(r.build_ms or 0.0 for r in own)
    head = ["kernel", "plan, ms", "most of all masks, ms", "forward and backward, ms", "plan over call"]
    return markdown_table(head, table) + f"\n\nMaking the mask itself, with its documents, takes {made:.1f} ms for every kernel."


def energy() -> str:
    """Millijoules per token of one layer, of the fastest kernel: power beside the samples times the time."""
    table = []
    timed = [r for r in _timed("h200/paper-kernel") if r.problem.seqlen == POWERED and r.energy and r.energy.watts]
    for mask in _masks("h200/paper-kernel"):
        cells = []
        for pass_ in PASSES:
            here = [r for r in timed if r.problem.mask == mask and r.problem.pass_ is pass_]
            fast = min(here, key=_ms)
            cells += [fast.label, f"{_millijoules(fast):.3g}", f"{_watts(fast):.0f}"]
        table.append([mask, *cells])
    head = ["fastest", "mJ", "W"]
    return markdown_table(["mask", *(f"{p.value}: {name}" for p in PASSES for name in head)], table)


def energy_measured() -> str:
    """Measured joules of a call beside the estimate of the other table."""
    with (ROOT / "results/h200/energy.csv").open() as file:
        cells = [row for row in csv.DictReader(file) if row["joules"]]
    table = []
    for row in cells:
        joules, estimate = float(row["joules"]), float(row["watts"]) * float(row["ms_median"]) / 1e3
        label = ":".join(filter(None, (row["kernel"], row["variant"])))
        table.append([row["mask"], row["pass"], label, format_figure(joules), format_figure(estimate), f"{joules / estimate:.2f}"])
    return markdown_table(["mask", "pass", "kernel", "J, measured", "J, power times time", "ratio"], table)


def methods(name: str) -> str:
    """The fastest methods per mask and number of GPUs, simulated; on one GPU all are the same."""
    table = []
    named_rows = named(name)
    numbers = sorted({row.record.problem.ranks for row in named_rows if row.record.problem.ranks > 1})
    for mask in _masks(name):
        for pass_ in (*PASSES, Pass.BOTH):
            cells = []
            for gpus in numbers:
                here = [row for row in named_rows if row.record.problem.mask == mask and row.record.problem.ranks == gpus]
                best = rank(entries(here, pass_)).equals
                names = {standing.records[0].method or "" for standing in best}
                slower = sorted({row.record.method or "" for row in here} - names)
                shown = f"all but {', '.join(slower)}" if 0 < len(slower) < len(names) else ", ".join(sorted(names))
                cells.append(f"{shown}: {best[0].tflops:.0f}" if best else "")
            table.append([mask, pass_.value, *cells])
    return markdown_table(["mask", "pass", *(f"{gpus} GPUs" for gpus in numbers)], table)


def simulation_error() -> str:
    """Errors of the simulation against published figures, from its validation."""
    text = (ROOT / "results/cpu/simulate_validate.txt").read_text()
    errors: dict[str, list[float]] = {}
    for line in text.splitlines():
        if match := re.match(r"(full|causal|full_document|causal_document)\s+(fwd|bwd)\s+\S+\s", line):
            kind = "documents" if match[1].endswith("document") else "full and causal"
            errors.setdefault(kind, []).extend(
                float(number) for number in re.findall(r"\b\d+ \d+ ([+-]\d+)%", line)
            )  # not that of the ratio
    table = []
    for kind, own in errors.items():
        sizes = sorted(map(abs, own))
        table.append([kind, str(len(own)), f"{median(sizes):.0f} %", f"{sizes[int(0.9 * (len(sizes) - 1))]:.0f} %", f"{sizes[-1]:.0f} %"])
    return markdown_table(["masks", "figures", "median error", "9 of 10 within", "most"], table)


def nearest_answers() -> str:
    return (ROOT / "results/h200/nearest_answers.txt").read_text().strip()


def _published() -> list[dict[str, str]]:
    with (ROOT / "results/published/h100_kernels.csv").open() as file:
        return list(csv.DictReader(file))


def _peers() -> list[dict[str, str]]:
    with (ROOT / "results/h200/peers.csv").open() as file:
        return list(csv.DictReader(file))


def _timed(name: str) -> list[Record]:
    return [record for record in journal(name).records if record.ok]


def _masks(name: str) -> list[str]:
    return in_order({record.problem.mask for record in journal(name).records})


def in_order(own: Collection[str]) -> list[str]:
    """These masks in the order in which `longca ls masks` has them."""
    return [mask for mask in masks.names() if mask in own]


def _both(records: Iterable[Record | None]) -> str:
    shown = [figure(record) if record else "-" for record in records]
    return "-" if set(shown) == {"-"} else "/".join(shown)


def _speed(record: Record) -> float:
    return record.speed


def _ms(record: Record) -> float:
    return record.times.median


def _millijoules(record: Record) -> float:
    return _watts(record) * record.times.median / record.problem.seqlen


def _watts(record: Record) -> float:
    return (record.energy.watts if record.energy else None) or 0.0


def backward_ideas(commit: str) -> str:
    """Milliseconds of a backward at 32K for each idea and mask, measured with the code of a commit, and the speed over that of the fastest
    kernel without ideas in the same run."""
    with (ROOT / "results/h200/backward_ideas.jsonl").open() as file:
        runs = [run for run in map(json.loads, file) if run["seqlen"] == LONG and run["commit"] == commit]
    cells: dict[str, dict[str, str]] = {WITHOUT_IDEAS: {}}
    for run in runs:
        times = run["times"]
        best = min((label for label in PEERS if label in times), key=lambda label: times[label][1])
        cells[WITHOUT_IDEAS][run["mask"]] = f"{times[best][1]:.2f}, {times[best][0]}"
        for label, (ran, ms, *_) in times.items():
            if label not in PEERS:
                cells.setdefault(_idea(label, ran), {})[run["mask"]] = f"{ms:.2f}, {times[best][1] / ms:.2f}"
    columns = list(dict.fromkeys(run["mask"] for run in runs))
    lines = [[label, *(row.get(mask, "") for mask in columns)] for label, row in cells.items()]
    return markdown_table(["idea", *columns], [lines[0], *sorted(lines[1:])])


def _idea(label: str, ran: str) -> str:
    """The name of an idea; `joined` by the number of heads that ran."""
    heads = re.search(r", (\d+) heads", ran)
    return label if label != "joined" else f"joined{heads[1]}" if heads else "lists"


TABLES = {
    "fastest": partial(fastest, "h200/paper-kernel", WITH_LONGEST), "fastest-magi": partial(fastest, "h200/magi-kernel", MAGI_LENGTHS),
    "published": partial(published, LONG), "published-8k": partial(published, 8192), "published-sparse": published_sparse,
    "artefacts": artefacts, "peers": peers, "sparse-pays": sparse_pays,
    "planning": planning, "energy": energy, "energy-measured": energy_measured, "methods": partial(methods, "simulated/h100-ib"),
    "methods-magi": partial(methods, "simulated/h100-ib-magi"), "simulation-error": simulation_error, "nearest-answers": nearest_answers,
    "backward-ideas": partial(backward_ideas, "2f057a9"), "backward-joined": partial(backward_ideas, "4b5028f"),
    "backward-documents": partial(backward_ideas, "b4cfb00"), "backward-finished": partial(backward_ideas, "81936c1"),
}  # fmt: skip
