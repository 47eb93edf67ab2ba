"""Context parallelism on one GPU: the ranks are threads, every result is checked, and each rank's attention calls are timed.

    PYTHONPATH=src python benchmarks/ranks_on_one_gpu.py [--out results/h200/ranks_on_one_gpu.jsonl]
    PYTHONPATH=src python benchmarks/ranks_on_one_gpu.py --device cpu --per-rank 64 --ranks 4 --heads 4:2 --head-dim 16 --masks causal

Transfers are copies within the device. They say nothing about a cluster and are not timed. The table has the time of all attention calls of
a rank; each call is timed alone, after the ranks have run. `speed-up` is the time of the whole mask in one call over that of the slowest
rank: the most that a cluster can gain if transfers are free. The exit code is 1 if a result is wrong. With --out a later call with
the same settings goes on where this one stopped.
"""

from __future__ import annotations

import argparse
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch

from longca import devices, masks
from longca.bench.check import reference as references
from longca.bench.check.comparison import compare
from longca.bench.check.verdict import Verdict
from longca.bench.one_device.compiled_code import keep_on_disk
from longca.errors import Refused
from longca.kernels import registry as kernels
from longca.kernels.base import Answer, Attention, Case, Kernel, Layout, Yes
from longca.kernels.choice._clocks import clock_for
from longca.kernels.inputs import WHICH, Inputs, tokens
from longca.masks import AnyMask
from longca.numerics.attention_step import InputsOf, Tensors, step_on_ranks
from longca.parallel import registry
from longca.parallel.comm.local import World
from longca.parallel.method import Plan, make_plan
from longca.parallel.primitives.program import Program
from longca.parallel.ranges import Ranges
from longca.text import format_size, parse_dims, parse_heads, parse_size

SAMPLES = 5  # of each call


class Kept(Kernel):
    """The kernel that is measured; while `keeps`, its calls are kept, by rank and pass."""

    name = "kept"
    devices = ("cpu", "cuda")
    capability = (0, 0)
    backward = "functional"
    inner = ""
    keeps: ClassVar = False
    calls: ClassVar = defaultdict[tuple[str, str], list[Callable[[], Any]]](list)

    def __init__(self, variant: str = "") -> None:
        super().__init__(variant)
        self.layout = kernels.choices(self.inner)[0].layout

    def supports(self, mask: AnyMask, case: Case) -> Answer:
        return Yes()

    def prepare(self, mask: AnyMask, case: Case) -> Attention:
        return KeptAttention(kernels.prepare(kernels.choose(self.inner, mask, case), mask, case).attention)


class KeptAttention(Attention):
    def __init__(self, inner: Attention) -> None:
        self._inner = inner

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._kept("fwd", partial(self._inner.forward, *tensors))

    def backward(self, *tensors: Any) -> Any:
        return self._kept("bwd", partial(self._inner.backward, *tensors))

    def _kept(self, pass_: str, call: Callable[[], Any]) -> Any:
        if Kept.keeps:
            Kept.calls[threading.current_thread().name, pass_].append(call)
        return call()


def step(plan: Plan, programs: list[Program], world: World, inputs_of: InputsOf) -> Tensors:
    """Forward and backward of all ranks, put together."""
    return step_on_ranks(programs, plan, world, inputs_of, kernels.choices(plan.kernel)[0].layout)


def timed_calls(plan: Plan, programs: list[Program], world: World) -> dict[str, list[float]]:
    """By pass, the milliseconds of each rank's attention calls in a step. They are timed after the step: threads of other ranks would delay
    what a call does on the host. Inputs are random in all rows: the check's dout is mostly 0, with which a device draws less power."""
    Kept.keeps = True
    step(plan, programs, world, lambda layout, own: Inputs(*(tokens(name, plan.case, own.tolist(), 0, layout) for name in WHICH)))
    Kept.keeps = False
    clock = clock_for(plan.case.device)

    def of_rank(rank: int, pass_: str) -> float:
        return round(sum(median(clock.sample(call) for _ in range(SAMPLES)) for call in Kept.calls[f"rank {rank}", pass_]), 5)

    times = {pass_: [of_rank(rank, pass_) for rank in range(plan.ranks)] for pass_ in ("fwd", "bwd")}
    Kept.calls.clear()
    return times


def measure(plan: Plan, truth: references.Reference) -> dict[str, Any]:
    """Whether all results are right, and the times of the ranks."""
    world, verdict = World(plan.ranks, plan.case.device), Verdict()
    programs = [plan.program(comm) for comm in world.comms()]
    for data_set in references.DATA_SETS:

        def inputs_of(layout: Layout, own: Ranges, data_set: str = data_set) -> Inputs:
            return references.data(plan.case, truth.sampled, data_set, 0, layout, own.tolist())

        compare(step(plan, programs, world, inputs_of), truth, data_set, plan.case, verdict)
    return {"ok": verdict.ok, "reason": verdict.reason, **timed_calls(plan, programs, world)}


def finished(out: Path | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The right rows with these settings that are in the file. A line that a kill left unfinished is removed."""
    if out is None or not out.exists():
        return []
    lines = out.read_text().splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    out.write_text("".join(whole))
    return [row for row in map(json.loads, whole) if row["ok"] and settings.items() <= row.items()]


def main() -> int:
    on_gpu = devices.kind() == "cuda"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", default="fa4" if on_gpu else "torch:chunked")
    parser.add_argument("--methods", default=",".join(registry.names()))
    parser.add_argument("--masks", default="causal,causal_document,share_question,sliding_window_causal")
    parser.add_argument("--per-rank", default="8K", help="tokens")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--heads", default="64:8")
    parser.add_argument("--head-dim", default="128")
    parser.add_argument("--dtype", default="bf16" if on_gpu else "fp32")
    parser.add_argument("--device", default=devices.kind())
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", type=Path, help="write the rows as JSON lines")
    args = parser.parse_args()
    keep_on_disk()
    Kept.inner = args.kernel
    seqlen = parse_size(args.per_rank) * args.ranks
    settings = {name: getattr(args, name) for name in ("kernel", "ranks", "heads", "head_dim", "dtype", "seed")}
    settings |= {"seqlen": seqlen, "dout": "random"}  # rows without a word on dout were timed with that of the check
    done, wrong = {(row["mask"], row["method"]) for row in finished(args.out, settings)}, 0
    print(f"{args.ranks} ranks, {format_size(seqlen)} tokens, {args.kernel}; ms of the slowest rank, and in brackets of the mean")
    print(f"{'mask':<24}{'method':<16}{'forward':>18}{'backward':>18}{'speed-up':>16}")
    with kernels.lent([Kept]):
        for name in masks.expand(args.masks.split(",")):
            left = [method for method in args.methods.split(",") if (name, method) not in done]
            if not left:
                continue
            mask = masks.build(name, seqlen, seed=args.seed)
            shape = (*parse_heads(args.heads), *parse_dims(args.head_dim), args.dtype, args.device)
            case = Case(seqlen, seqlen, *shape, partial_backward=True)
            truth = references.reference(mask, case, seed=0)
            alone = measure(make_plan(registry.get("ring_allgather"), mask, case, 1, None, "kept"), truth)
            for method in left:
                try:
                    row = measure(make_plan(registry.get(method), mask, case, args.ranks, None, "kept"), truth)
                except Refused as refused:
                    print(f"{name:<24}{method:<16}{refused}")
                    continue
                wrong += not row["ok"]
                cells = [f"{max(row[pass_]):>9.3f} ({sum(row[pass_]) / args.ranks:.3f})" for pass_ in ("fwd", "bwd")]
                gains = " / ".join(f"{alone[pass_][0] / max(row[pass_]):.2f}" for pass_ in ("fwd", "bwd"))
                print(f"{name:<24}{method:<16}{cells[0]:>18}{cells[1]:>18}{gains:>16}  {row['reason']}", flush=True)
                if args.out:
                    with args.out.open("a") as file:
                        file.write(json.dumps({"mask": name, "method": method} | settings | {"alone": alone} | row) + "\n")
    print("all right" if not wrong else f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
