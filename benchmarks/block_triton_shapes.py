"""Which tile shapes of block_triton are fast: every shape of a grid, per step, in TFLOP/s of the work that the step does.

PYTHONPATH=src python3 benchmarks/block_triton_shapes.py --out out/shapes.jsonl [--only b64-64:64] [--steps forward,dkv]

A shape is rows x heads x keys, warps, stages. Shapes are compiled by many processes first, then timed one after the other in one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from longca import masks
from longca.text import parse_list, parse_size

PATTERNS: dict[str, tuple[str, dict[str, Any]]] = {
    "b64": ("uniform_block", {"b": 64, "ratio": 0.2}),
    "b128": ("uniform_block", {"b": 128, "ratio": 0.2}),
    "avg256": ("variable_block", {"avg": 256, "ratio": 0.5}),
}
PROBLEMS = ("b64-64:64", "b64-64:8", "b128-64:8", "b128-64:64", "avg256-64:8")
STEPS = ("forward", "dq", "dkv")
MATMULS = {"forward": 2, "dq": 3, "dkv": 4}
Trial = tuple[str, str, Any]


def grid(problem: str, step: str) -> Iterator[Any]:
    from longca.kernels.backends.block_triton._launch import Shape

    pattern, heads = problem.split("-")
    most = 64 if pattern == "b64" else 128
    if step == "dkv":
        for rows, keys, warps, stages in product((32, 64, 128), (64, 128), (4, 8), (2, 3, 4, 5)):
            if keys <= most and rows <= most and not (keys == 64 and warps == 8) and not (rows == 128 and keys == 128):
                yield Shape(rows, 1, keys, warps, stages)
        return
    for (rows, pack), keys, warps, stages in product(((64, 1), (64, 2), (128, 1), (16, 8), (32, 4)), (64, 128), (4, 8), (2, 3, 4, 5)):
        if (heads == "64:64" and pack > 1) or rows > most or keys > (128 if step == "forward" else most):
            continue
        if (rows < 64) == (pattern == "avg256") and not (rows * pack == 64 and warps == 8):
            yield Shape(rows, pack, keys, warps, stages)


def prepared(problem: str, seqlen: int) -> Any:
    from longca.kernels.backends.block_triton._launch import Launcher
    from longca.kernels.base import Case
    from longca.text import parse_heads

    pattern, heads = problem.split("-")
    (name, params), (heads_q, heads_kv) = PATTERNS[pattern], parse_heads(heads)
    mask = masks.build(name, seqlen, seed=42, heads=heads_kv, **params)
    case = Case(seqlen, seqlen, heads_q, heads_kv, 128, 128, "bf16", "cuda")
    return Launcher(mask, case)


def trials(args: argparse.Namespace) -> list[Trial]:
    return [(problem, step, shape) for problem in parse_list(args.only) for step in parse_list(args.steps) for shape in grid(problem, step)]


def warm(args: argparse.Namespace) -> None:
    """Compile every n-th shape by launching it; one that does not fit is found out when it is timed."""
    part, of = map(int, args.warm.split("/"))
    launcher, now = None, ""
    for problem, step, shape in trials(args)[part::of]:
        if problem != now:
            launcher, now = prepared(problem, parse_size(args.seqlen)), problem
        try:
            launcher.launch(step, shape, launcher.samples(step))
        except Exception:
            continue


def time_all(args: argparse.Namespace) -> None:
    from longca.bench.clock.clock import measure
    from longca.bench.clock.timers import timer_for
    from longca.results.settings import ClockSettings

    timer, launcher, now = timer_for("cuda"), None, ""
    with args.out.open("a") as journal:
        for problem, step, shape in trials(args):
            if problem != now:
                launcher, now = prepared(problem, parse_size(args.seqlen)), problem
            tensors, mask = launcher.samples(step), launcher.mask
            found: dict[str, Any] = {"problem": problem, "step": step, "shape": list(vars(shape).values())}
            try:
                timing = measure(
                    lambda s=step, x=shape, t=tensors, a=launcher: a.launch(s, x, t),
                    timer,
                    ClockSettings(budget_s=0.1, target=0.01, least=3),
                )
                work = 2 * mask.area * (launcher.case.heads_q // mask.heads) * 128 * MATMULS[step]
                found |= {"ms": timing.median, "tflops": work / timing.median / 1e9}
            except Exception as error:
                found["error"] = f"{type(error).__name__}: {str(error)[:80]}"
            print(json.dumps(found), file=journal, flush=True)


def table(path: Path) -> None:
    """The best five shapes of each problem and step."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        found.setdefault((record["problem"], record["step"]), []).append(record)
    for (problem, step), records in found.items():
        best = sorted((r for r in records if "ms" in r), key=lambda r: r["ms"])[:5]
        print(f"{problem:12} {step:8}", "  ".join(f"{'x'.join(map(str, r['shape']))}={r['tflops']:.0f}" for r in best))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path, default=Path("out/block_triton_shapes.jsonl"))
    parser.add_argument("--seqlen", default="32K")
    parser.add_argument("--only", default=",".join(PROBLEMS))
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--processes", type=int, default=14, help="that compile")
    parser.add_argument("--warm", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.warm:
        warm(args)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    compilers = [subprocess.Popen([*sys.orig_argv, "--warm", f"{part}/{args.processes}"]) for part in range(args.processes)]
    for compiler in compilers:
        compiler.wait()
    time_all(args)
    table(args.out)


if __name__ == "__main__":
    main()
