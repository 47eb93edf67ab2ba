"""Compares the kernel `best` with every installed kernel, forward and backward apart, samples interleaved.

    PYTHONPATH=src python benchmarks/best_of_all.py [--masks all] [--seqlens 8K,32K,128K] [--out results/h200/best_of_all.jsonl]
    PYTHONPATH=src python benchmarks/best_of_all.py --device cpu --masks causal,share_question --seqlens 256 --heads 2:1 --head-dim 32

All kernels run on the same numbers in one process, in turns, so that they see the same clock and temperature of the device. In each turn
the time of the fastest other kernel is divided by that of `best`; the ratio is the median of that: 1 is equal. It counts as reached at .98,
or where the interval of the median, of which at most 2 % count, reaches that. Results are not checked here: `longca verify --kernels best`
does that. `best` autotunes before the samples; --fresh ignores what `longca tune` measured. Lengths run from short to long. A
kernel that took over 1.5 times as long as the fastest in a pass is not timed in it at the next length on that mask. The last lines say
in how many rows the first kernel by records, without autotuning, would have reached .98, and whether `best` was never under it; the exit
code is 1 where it was. --stop-after ends after some seconds; with --out a later call goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch

from longca import devices, masks
from longca.bench.check.check import KernelSubject
from longca.bench.clock.clock import half_width
from longca.bench.one_device.compiled_code import keep_on_disk
from longca.errors import LongcaError, Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel, Yes
from longca.kernels.choice import chooser
from longca.kernels.choice._clocks import Clock, clock_for
from longca.kernels.inputs import Inputs, make
from longca.masks import AnyMask
from longca.text import format_size, parse_dims, parse_heads, parse_size

GOAL = 0.98
FEWEST, MOST = 7, 40  # samples of each kernel
FEW, PATIENCE_S = 3, 3.0  # so few samples do after so long
MOST_SPREAD = 0.02  # of the ratio, that may excuse one under the goal
SURE, EXTENSION = 0.01, 4  # a spread of the ratio that needs no more samples, and the budgets that reaching it may take
FAR, CLOSE = (2.0, 1.3), 1.05  # times the fastest that a kernel may take after one and two samples, and after `FEW` that count
BEHIND = 1.5  # times the fastest at the length before: such a kernel is not timed in this pass
PASSES = ("fwd", "bwd")
Row = dict[str, Any]
QUADRATIC = 8192  # tokens beyond which kernels that need memory for every pair are left out


@dataclass
class Runner:
    """A prepared kernel on its inputs. `timed` are the passes in which it takes part."""

    label: str
    chose: str
    subject: KernelSubject
    inputs: Inputs
    timed: set[str]
    prepare_s: float  # with its first calls; of `best` with autotuning
    samples: list[float] = field(default_factory=list)

    def forward(self) -> None:
        self.subject.forward(self.inputs)
        self.subject.release()

    def backward(self) -> None:
        self.subject.backward(self.inputs)

    def take(self, pass_: str, clock: Clock) -> None:
        self.samples.append(clock.sample(self.forward if pass_ == "fwd" else self.backward, min(self.samples, default=0.0)))

    @property
    def ms(self) -> float:
        return median(self.samples)


def runners(mask: AnyMask, case: Case, longest: int, behind: set[tuple[str, str]]) -> Iterator[Runner]:
    """`best` and every kernel that is available and supports the call, but those that were `behind` in both passes; what fails is printed
    and left out."""
    inputs = dict[str, Inputs]()
    for label in ("best", *registry.available_labels(case.device)):
        timed = {pass_ for pass_ in PASSES if (label, pass_) not in behind}
        if not registry.supports(registry.get(label), mask, replace(case, backward=False)):
            timed -= {"fwd"}  # of a kernel that has only a backward of its own
        try:
            kernel = registry.get(label)
            if not timed or not (kernel.chooses or _takes(kernel, mask, case, longest)):
                continue
            begun = time.perf_counter()
            ran, attention = registry.prepare(kernel, mask, case)
            given = inputs.setdefault(ran.layout, make(case, layout=ran.layout))
            runner = Runner(label, ran.chose, KernelSubject(ran, attention, case), given, timed, 0.0)
            runner.subject.forward(given)
            runner.backward()
            yield replace(runner, prepare_s=time.perf_counter() - begun)
        except (LongcaError, RuntimeError) as error:
            print(f"  {label} left out: {type(error).__name__}: {str(error).splitlines()[0][:160]}", file=sys.stderr)


def _takes(kernel: Kernel, mask: AnyMask, case: Case, longest: int) -> bool:
    answer = registry.supports(kernel, mask, case)
    return isinstance(answer, Yes) and not (answer.quadratic and max(case.seqlen_q, case.seqlen_k) > longest)


def sample(entrants: list[Runner], pass_: str, clock: Clock, warmup_s: float, budget_s: float) -> None:
    """Takes samples of `best` and the others in turns, after a warm-up, until their ratio is known well. Kernels that are far behind leave
    after the first turns: they would let the device rest, and the kernel after them run at a higher clock. Where all kernels together
    take longer than the warm-up, the first samples count, too."""
    left = entrants
    for number, far in enumerate(FAR):
        begun = time.perf_counter()
        _take_turns(left, pass_, clock, number)
        left = _near(left, far)
    if time.perf_counter() - begun < warmup_s:
        while time.perf_counter() - begun < warmup_s:
            _take_turns(left, pass_, clock, 0)
        for entrant in left:
            entrant.samples = []
    begun = time.perf_counter()
    for number in range(len(left[0].samples), MOST):
        _take_turns(left, pass_, clock, number)
        if number + 1 == FEW:
            left = _near(left, CLOSE)
        took = time.perf_counter() - begun
        is_enough = took > EXTENSION * budget_s or ratio_of(entrants)[1] <= SURE
        if number + 1 >= (FEWEST if took < PATIENCE_S else FEW) and took > budget_s and is_enough:
            return


def _near(entrants: list[Runner], far: float) -> list[Runner]:
    """Returns `best`, and the others that take at most so many times as long as the fastest."""
    least = min(entrant.ms for entrant in entrants)
    return [entrant for entrant in entrants if entrant.label == "best" or entrant.ms <= far * least]


def _take_turns(entrants: list[Runner], pass_: str, clock: Clock, number: int) -> None:
    """Takes a sample of each, in an order that depends on the number: so that none always follows the same."""
    for entrant in Random(number).sample(entrants, len(entrants)):
        entrant.take(pass_, clock)


def best_and_fastest(entrants: list[Runner]) -> tuple[Runner, Runner]:
    """Returns `best` and the fastest of the others; those that left early are behind."""
    best, *others = sorted(entrants, key=lambda entrant: (entrant.label != "best", -len(entrant.samples)))
    return best, min((entrant for entrant in others if len(entrant.samples) == len(others[0].samples)), key=lambda entrant: entrant.ms)


def ratio_of(entrants: list[Runner]) -> tuple[float, float]:
    """Returns the time of the fastest other kernel over that of `best`, and its spread."""
    best, fastest = best_and_fastest(entrants)
    in_turns = [other / own for other, own in zip(fastest.samples, best.samples, strict=False)]  # those far behind have fewer samples
    return median(in_turns), half_width(in_turns)


def verdict(entrants: list[Runner], **where: object) -> Row:
    """The row of one pass."""
    best, fastest = best_and_fastest(entrants)
    ratio, spread = ratio_of(entrants)
    times = {entrant.label: round(entrant.ms, 5) for entrant in sorted(entrants, key=lambda entrant: entrant.ms)}
    row = {"chose": best.chose, "ms": best.ms, "fastest": fastest.label, "fastest_ms": fastest.ms, "ratio": ratio, "spread": spread}
    return {
        **where,
        **row,
        "reached": ratio >= GOAL or ratio * (1 + min(spread, MOST_SPREAD)) >= GOAL,
        "samples": len(best.samples),
        "all_ms": times,
        "prepare_s": {entrant.label: round(entrant.prepare_s, 1) for entrant in entrants},
    }


def measure(mask: AnyMask, case: Case, args: argparse.Namespace, behind: set[tuple[str, str]]) -> list[Row]:
    clock, rows = clock_for(case.device), list[Row]()
    entrants = list(runners(mask, case, args.quadratic, behind))
    if not any(entrant.label == "best" for entrant in entrants) or len(entrants) < 2:
        raise Refused(f"best and another kernel must run on {mask.name}; see what was left out above.")
    by_records = chooser.without_autotuning(chooser.contest(mask, case), case).by_pass
    for pass_ in PASSES:
        timed = [entrant for entrant in entrants if pass_ in entrant.timed]
        for entrant in timed:
            entrant.samples = []
            if pass_ == "bwd":
                entrant.subject.forward(entrant.inputs)
        sample(timed, pass_, clock, args.warmup, args.budget)
        rows.append(verdict(timed, mask=mask.name, seqlen=case.seqlen_k, **{"pass": pass_}, by_records=by_records[pass_]))
    return rows


def without_autotuning(rows: list[Row]) -> str:
    """The sentence on what records alone would have reached; a kernel that was not timed did not."""
    shares = [row["fastest_ms"] / row["all_ms"].get(row["by_records"], math.inf) for row in rows if "by_records" in row]
    if not shares:
        return "records alone: no rows"
    return f"records alone: {sum(share >= GOAL for share in shares)} of {len(shares)} rows reach {GOAL:g}, the worst {min(shares):.3f}"


def behind_in(rows: list[Row]) -> set[tuple[str, str]]:
    """The kernels and passes that were too slow for the next length."""
    return {
        (label, row["pass"]) for row in rows for label, ms in row["all_ms"].items() if label != "best" and ms > BEHIND * row["fastest_ms"]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masks", default="all")
    parser.add_argument("--seqlens", default="8K,32K,128K")
    parser.add_argument("--heads", default="64:8")
    parser.add_argument("--head-dim", default="128")
    parser.add_argument("--dtype", help="bf16, on a CPU fp32")
    parser.add_argument("--device", default=devices.kind())
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--warmup", type=float, default=0.2, metavar="S", help="seconds per mask and pass")
    parser.add_argument("--budget", type=float, default=1.0, metavar="S", help="seconds of samples per mask and pass")
    parser.add_argument("--quadratic", type=parse_size, default=QUADRATIC, help="longest sequence of kernels with memory for every pair")
    parser.add_argument("--fresh", action="store_true", help="ignore what `longca tune` measured")
    parser.add_argument("--out", type=Path, help="write the rows as JSON lines")
    parser.add_argument("--stop-after", type=float, default=float("inf"), metavar="S", help="begin no mask after so many seconds")
    args = parser.parse_args()
    if args.fresh:
        os.environ["LONGCA_CACHE"] = tempfile.mkdtemp(prefix="longca-best-")
    keep_on_disk()
    dtype = args.dtype or ("bf16" if args.device == "cuda" else "fp32")
    rows: list[Row] = [json.loads(line) for line in args.out.read_text().splitlines()] if args.out and args.out.exists() else []
    behind, done = defaultdict[str, set[tuple[str, str]]](set), {(row["mask"], row["seqlen"]) for row in rows}
    for row in rows:
        behind[row["mask"]] |= behind_in([row])
    begun, is_complete = time.perf_counter(), True
    print(f"{'mask':<24}{'tokens':>7} {'pass':<5}{'best':>9} {'fastest':>9}  {'ratio':>5}")
    for seqlen in sorted(map(parse_size, args.seqlens.split(","))):
        for name in masks.expand(args.masks.split(",")):
            if (name, seqlen) in done:
                continue
            if time.perf_counter() - begun > args.stop_after:
                is_complete = False
                continue
            mask = masks.build(name, seqlen, seed=args.seed)
            case = Case(mask.seqlen_q, mask.seqlen_k, *parse_heads(args.heads), *parse_dims(args.head_dim), dtype, args.device)
            measured = measure(mask, case, args, behind[name])
            behind[name] |= behind_in(measured)
            rows += measured
            for row in measured:
                times = f"{row['ms']:>9.4f} {row['fastest_ms']:>9.4f}  {row['ratio']:>5.3f}"
                mark = "" if row["reached"] else "  UNDER"
                print(f"{name:<24}{format_size(seqlen):>7} {row['pass']:<5}{times}  {row['chose']} | {row['fastest']}{mark}", flush=True)
            if args.out:
                with args.out.open("a") as file:
                    file.writelines(json.dumps(row) + "\n" for row in measured)
            gc.collect()
            if args.device == "cuda":
                torch.cuda.empty_cache()
    if not is_complete:
        print("not complete: the time was over; run it again to go on.")
        return 3
    print(without_autotuning(rows))
    worst = min(rows, key=lambda row: row["ratio"])
    print(f"worst: {worst['ratio']:.3f} ({worst['mask']}, {format_size(worst['seqlen'])}, {worst['pass']})")
    reached = all(row["reached"] for row in rows)
    print(f"never under {GOAL:g}: {'true' if reached else 'false'}".replace("0.", "."))
    return 0 if reached else 1


if __name__ == "__main__":
    raise SystemExit(main())
