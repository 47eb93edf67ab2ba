"""Do a run and kernels measured in turns give the same times? On a GPU:

    PYTHONPATH=src python benchmarks/clock_agreement.py JOURNAL [--seqlens 1K,8K,32K] [--out FILE]

JOURNAL is that of `longca run` with several kernels. Its cells are measured again, in one process: all kernels of a mask, length and
pass are prepared, and their samples are taken in turns. Prints how far the times of both differ, and the same for the times as measured,
without the device's clock. With --out, a later call goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import torch

from longca.bench.check.calls import Calls
from longca.bench.check.check import KernelSubject
from longca.bench.clock.clock import Sample, at_one_clock
from longca.bench.clock.timers import CudaTimer
from longca.bench.one_device.compiled_code import keep_on_disk
from longca.kernels import inputs, registry
from longca.kernels.base import Case
from longca.results.metrics import reference_clock
from longca.results.problem import Pass, Problem
from longca.results.reading import read
from longca.results.record import Record
from longca.text import parse_size

SHORT, LONG, LONG_MS, WARM = 10, 5, 20.0, 4  # samples up to and beyond a length of calls, and those that do not count
Row = dict[str, object]


def in_turns(problem: Problem, records: Iterable[Record], timer: CudaTimer) -> list[Row]:
    """A row for each record, with the times of its journal and of samples taken in turns."""
    mask, pass_, reference = problem.build_mask(), problem.pass_, reference_clock(torch.cuda.get_device_name())
    rows, taken = list[Row](), defaultdict[str, list[Sample]](list)
    with ExitStack() as stack:
        samples = {}
        for record in records:
            case = Case(
                mask.seqlen_q, mask.seqlen_k, problem.heads_q, problem.heads_kv, problem.head_dim, problem.head_dim_v, problem.dtype,
                "cuda", backward=record.grad,
            )  # fmt: skip
            kernel, attention = registry.prepare(registry.choose(record.asked, mask, case), mask, case)
            calls = Calls(KernelSubject(kernel, attention, case), inputs.make(case, problem.seed, kernel.layout), case, problem.seed)
            calls.keep(pass_)
            samples[record.label] = stack.enter_context(closing(timer.samples(calls.of(pass_), partial(calls.change, pass_))))
        number = SHORT if max(record.times.median for record in records) <= LONG_MS else LONG
        for turn in range(WARM + number):
            for label, of_kernel in samples.items():
                sample = next(of_kernel)
                taken[label] += [sample] if turn >= WARM else []
    for record in records:
        again = taken[record.label]
        mhz = record.times.clock_mhz or 1.0
        rows.append(
            {"mask": problem.mask, "seqlen": problem.seqlen, "pass": str(pass_), "kernel": record.label}
            | {"run_ms": record.times.median, "turns_ms": statistics.median(at_one_clock(again, reference)[0])}
            | {"raw_run_ms": record.times.median * (record.times.at_mhz or mhz) / mhz}
            | {"raw_turns_ms": statistics.median(sample.ms for sample in again)}
        )  # fmt: skip
    return rows


def summary(rows: list[Row], field: str = "") -> str:
    off = sorted(abs(float(str(row[f"{field}turns_ms"])) / float(str(row[f"{field}run_ms"])) - 1) for row in rows)
    within = sum(each <= 0.02 for each in off) / len(off)
    return f"median difference {statistics.median(off):.2%}, 95 % within {off[int(0.95 * (len(off) - 1))]:.2%}, {within:.1%} within 2 %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--seqlens", default="1K,8K,32K")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="S", help="begin no mask after so many seconds")
    args = parser.parse_args()
    keep_on_disk()
    lengths, groups, begun = {parse_size(text) for text in args.seqlens.split(",")}, defaultdict(list), time.monotonic()
    for record in read(args.journal).records:
        if record.ok and record.problem.seqlen in lengths:
            groups[record.problem].append(record)
    rows: list[Row] = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    done = {(row["mask"], row["seqlen"], row["pass"]) for row in rows}
    timer = CudaTimer()
    for problem, records in groups.items():
        if (problem.mask, problem.seqlen, str(problem.pass_)) in done or time.monotonic() - begun > args.stop_after:
            continue
        try:
            rows += (found := in_turns(problem, records, timer))
        except torch.cuda.OutOfMemoryError:
            print(f"{problem.mask} {problem.seqlen} {problem.pass_}: no memory for all kernels at once")
            continue
        if args.out:
            with args.out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in found)
        gc.collect()
        torch.cuda.empty_cache()
    for pass_ in Pass.FWD, Pass.BWD:
        for seqlen in sorted(lengths):
            some = [row for row in rows if row["pass"] == str(pass_) and row["seqlen"] == seqlen]
            print(f"{pass_} {seqlen:>6}: {len(some)} cells; {summary(some)}" if some else f"{pass_} {seqlen:>6}: no cells")
    print(f"all {len(rows)} cells: {summary(rows)}")
    print(f"as measured, without the clock: {summary(rows, 'raw_')}")


if __name__ == "__main__":
    main()
