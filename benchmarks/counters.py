"""Where the time of the fastest kernels goes: counters of NVIDIA's `ncu` for the fastest forward and backward of some masks.

    PYTHONPATH=src python benchmarks/counters.py --out results/h200/counters.jsonl [--table results/h200/counters.md]

The kernels are the fastest of a journal. One process runs one call of each under `ncu --clock-control none`; only GPU kernels that take at
least 2 % of a call are shown. With --out a later call counts only what the file does not have, and --stop-after begins no cell after some
seconds. Without ncu, `--table` still writes the table of a file.

The columns: tensor cores, exponentials (the XU pipe), other arithmetic (FMA, ALU), issue slots, shared memory and L1, L2 and DRAM are in
percent of the peak while an SM works. Stalls are shares of the time of a warp, the three longest. Waves are thread blocks over those that
fit at once. `busy` is the time that an SM works, over the time of the kernel, on average over the SMs: the rest is the launch and the tail
of the grid. `longest` is the SM that works longest over the average.
"""

from __future__ import annotations

import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from limits import standings

from longca import masks
from longca.results.reading import read_some
from longca.text import format_size, parse_heads, parse_size

MASKS = "full,causal,sliding_window_causal,causal_document,share_question,causal_blockwise"
ACTIVE, ELAPSED = "avg.pct_of_peak_sustained_active", "avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "ns": "gpu__time_duration.sum",
    "tensor": f"sm__pipe_tensor_cycles_active.{ACTIVE}",
    "exp": f"sm__inst_executed_pipe_xu.{ACTIVE}",
    "fma": f"sm__inst_executed_pipe_fma.{ACTIVE}",
    "alu": f"sm__inst_executed_pipe_alu.{ACTIVE}",
    "issue": f"sm__inst_issued.{ACTIVE}",
    "L1": f"l1tex__throughput.{ACTIVE}",
    "L2": f"lts__throughput.{ELAPSED}",
    "L2_hits": "lts__t_sector_hit_rate.pct",
    "DRAM": f"dram__throughput.{ELAPSED}",
    "DRAM_bytes": "dram__bytes.sum",
    "warps": f"sm__warps_active.{ACTIVE}",
    "waves": "launch__waves_per_multiprocessor",
    "blocks": "launch__grid_size",
    "registers": "launch__registers_per_thread",
    "cycles": "sm__cycles_elapsed.max",
    "active_avg": "sm__cycles_active.avg",
    "active_min": "sm__cycles_active.min",
    "active_max": "sm__cycles_active.max",
    "latency": "smsp__average_warp_latency_per_inst_issued.ratio",
}
STALLS = {
    "long_scoreboard": "memory", "short_scoreboard": "shared memory", "barrier": "barrier", "gmma": "wgmma", "wait": "fixed latency",
    "math_pipe_throttle": "pipe busy", "mio_throttle": "MIO queue", "lg_throttle": "load queue", "not_selected": "not selected",
    "selected": "issuing", "sleeping": "sleeping", "membar": "fence", "no_instruction": "instructions", "dispatch_stall": "dispatch",
    "branch_resolving": "branch", "drain": "drain", "imc_miss": "constants",
}  # fmt: skip
METRICS |= {f"stall_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in STALLS}
BETWEEN = "spin_kernel"  # of torch.cuda._sleep: the first GPU kernel of each cell
LEAST_SHARE = 0.02  # of a call's time, that a GPU kernel must take
DEADLINE_S = 600.0
Row = dict[str, Any]


def cells_of(journal: str, names: Sequence[str], seqlen: int) -> list[Row]:
    """Returns the fastest kernel of each mask and pass in a journal, with its share of the limit of its tiles."""
    cells = []
    for standing in standings(read_some([journal])):
        problem = standing.best.problem
        if problem.mask in names and problem.seqlen == seqlen:
            shape = {"heads": f"{problem.heads_q}:{problem.heads_kv}", "head_dim": problem.head_dim, "dtype": problem.dtype}
            cell = {"mask": problem.mask, "seqlen": seqlen, "pass": problem.pass_.value, "kernel": standing.best.label}
            cells.append(cell | shape | {"seed": problem.seed, "share_of_limit": round(standing.share, 3)})
    return sorted(cells, key=lambda cell: (cell["pass"] == "bwd", names.index(cell["mask"])))


def key(row: Row) -> tuple[Any, ...]:
    return row["mask"], row["seqlen"], row["pass"], row["kernel"]


def count(cells: Sequence[Row], seconds: float) -> Iterator[Row]:
    """Yields the counters of each cell that ran, as one row."""
    program = shutil.which("ncu")
    if program is None:
        raise SystemExit("ncu was not found; it is part of the CUDA toolkit (Nsight Compute).")
    with tempfile.TemporaryDirectory() as folder:
        log, ran = Path(folder, "ncu.csv"), Path(folder, "ran.jsonl")
        options = ["--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--profile-from-start", "off"]
        own = [sys.executable, __file__, "--cells", json.dumps(cells), "--stop-after", str(seconds), "--out", str(ran)]
        command = [program, *options, "--log-file", str(log), "--metrics", ",".join(METRICS.values()), *own]
        done = subprocess.run(command, timeout=DEADLINE_S, check=False)
        begun = [json.loads(line) for line in ran.read_text().splitlines()] if ran.exists() else []
        counted = list(calls(log.read_text())) if log.exists() else []
        if done.returncode or not counted:
            print(f"ncu ended with exit code {done.returncode}:\n{log.read_text()[-2000:] if log.exists() else ''}", file=sys.stderr)
    for cell, kernels in zip(begun, counted, strict=False):
        total = sum(kernel["ns"] for kernel in kernels)
        yield cell | {"ms": total / 1e6, "kernels": [kernel for kernel in kernels if kernel["ns"] >= LEAST_SHARE * total]}


def calls(log: str) -> Iterator[list[Row]]:
    """Yields, for each call in ncu's log, its GPU kernels with their values. A spin begins each call."""
    lines = log.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels = list(csv.DictReader(lines[start:]))[1:]  # the first row has the units
    for is_spin, group in groupby(kernels, lambda row: BETWEEN in row["Kernel Name"]):
        if not is_spin:
            yield [{"name": row["Kernel Name"]} | numbers(row) for row in group]


def numbers(row: dict[str, str]) -> dict[str, float]:
    """Returns the values of the metrics that ncu knows on this device."""
    texts = {title: (row.get(metric) or "").replace(",", "") for title, metric in METRICS.items()}
    return {title: float(text) for title, text in texts.items() if text.replace(".", "", 1).replace("e+", "", 1).isdecimal()}


def run(cells: Sequence[Row], seconds: float, out: Path) -> None:
    """Runs one call of each cell between cudaProfilerStart and -Stop, and notes the cells that ran, in their order."""
    import torch

    from longca.bench.check.check import KernelSubject
    from longca.bench.one_device.compiled_code import keep_on_disk
    from longca.kernels import registry
    from longca.kernels.base import Case
    from longca.kernels.inputs import make

    keep_on_disk()
    cuda: Any = torch.cuda
    begun = time.perf_counter()
    for cell in cells:
        if time.perf_counter() - begun > seconds:
            return
        mask, backward = masks.build(cell["mask"], cell["seqlen"], seed=cell["seed"]), cell["pass"] == "bwd"
        size = cell["head_dim"]
        case = Case(cell["seqlen"], cell["seqlen"], *parse_heads(cell["heads"]), size, size, cell["dtype"], "cuda", backward=backward)
        try:
            kernel, attention = registry.prepare(registry.choose(cell["kernel"], mask, case), mask, case)
            subject, inputs = KernelSubject(kernel, attention, case), make(case, layout=kernel.layout)
            subject.forward(inputs)
            call = subject.backward if backward else subject.forward
            call(inputs)
            cuda.synchronize()
        except Exception as error:  # the other cells are counted all the same
            print(f"{cell['kernel']} on {cell['mask']}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        cuda.profiler.start()
        cuda._sleep(1000)
        call(inputs)
        cuda.synchronize()
        cuda.profiler.stop()
        with out.open("a") as file:
            file.write(json.dumps(cell) + "\n")
        print(f"{cell['pass']} {cell['mask']} {cell['kernel']} after {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)


def table(rows: Sequence[Row]) -> str:
    """Returns all rows as a Markdown table, one line per GPU kernel."""
    titles = ["mask", "pass", "kernel", "of the limit", "GPU kernel", "ms", "tensor", "exp", "FMA", "ALU", "issue", "L1", "L2", "DRAM"]
    titles += ["stalls", "waves", "busy", "longest"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in rows:
        lead = [row["mask"], row["pass"], row["kernel"], f"{row['share_of_limit']:.2f}"]
        for kernel in sorted(row["kernels"], key=lambda kernel: -kernel["ns"]):
            lines.append(f"| {' | '.join([*lead, *_columns(kernel)])} |")
            lead = [""] * len(lead)
    return "\n".join(lines)


def _columns(kernel: Row) -> list[str]:
    shares = [_text(kernel.get(title), "{:.0f}") for title in ("tensor", "exp", "fma", "alu", "issue", "L1", "L2", "DRAM")]
    name = kernel["name"].partition("(")[0].replace("|", " ")
    stalls = ", ".join(f"{STALLS[reason]} {100 * share:.0f}" for share, reason in longest_stalls(kernel))
    average = kernel.get("active_avg")
    busy = average / kernel["cycles"] if average and kernel.get("cycles") else None
    longest = kernel["active_max"] / average if average and kernel.get("active_max") else None
    tail = [_text(kernel.get("waves"), "{:.1f}"), _text(busy, "{:.2f}"), _text(longest, "{:.2f}")]
    return [f"`{name[:40]}`", f"{kernel['ns'] / 1e6:.3f}", *shares, stalls, *tail]


def longest_stalls(kernel: Row) -> list[tuple[float, str]]:
    """Returns the three longest stalls as (share of a warp's time, reason)."""
    cycles = {reason: kernel.get(f"stall_{reason}", 0.0) for reason in STALLS}
    whole = max(kernel.get("latency", 0.0), sum(cycles.values()))
    return sorted(((spent / whole, reason) for reason, spent in cycles.items() if spent), reverse=True)[:3]


def _text(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", default=MASKS)
    parser.add_argument("--seqlen", type=parse_size, default=parse_size("32K"))
    parser.add_argument("--journal", default="results/h200/paper-kernel", help="names the fastest kernels")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines, one per mask and pass")
    parser.add_argument("--table", type=Path, help="write the Markdown table to this file, too")
    parser.add_argument("--stop-after", type=float, default=150.0, metavar="S", help="begin no cell after so many seconds")
    parser.add_argument("--cells", type=json.loads, help=argparse.SUPPRESS)  # of the process under ncu
    args = parser.parse_args()
    if args.cells:
        run(args.cells, args.stop_after, args.out)
        return 0
    names, rows = args.masks.split(","), [json.loads(line) for line in args.out.read_text().splitlines()] if args.out.exists() else []
    wanted = cells_of(args.journal, names, args.seqlen)
    if not wanted:
        parser.exit(2, f"{args.journal} has no times of these masks at {format_size(args.seqlen)}.\n")
    known = set(map(key, rows))
    left = [cell for cell in wanted if key(cell) not in known]
    if left and (shutil.which("ncu") or not rows):
        with args.out.open("a") as file:
            for row in count(left, args.stop_after):
                file.write(json.dumps(row) + "\n")
                rows.append(row)
    text = table(rows)
    print(text)
    if args.table:
        args.table.write_text(text + "\n")
    complete = set(map(key, wanted)) <= set(map(key, rows))
    if not complete:
        print("not complete: run it again to go on.", file=sys.stderr)
    return 0 if complete else 3


if __name__ == "__main__":
    raise SystemExit(main())
