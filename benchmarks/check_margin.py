"""How near correct kernels come to the tolerance of the check: the worst share of it over thousands of checks, by kernel and dtype.

python benchmarks/check_margin.py                  # a CPU: 5,000 checks at 64 to 512 tokens, about 15 minutes on one core
python benchmarks/check_margin.py --seconds 300    # a GPU: every kernel that runs there, at 128 to 8,192 tokens, for so long

Masks, lengths, heads, head sizes and seeds are drawn. Exit code 1 if a kernel is called wrong, or comes nearer than .8 of the tolerance.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import torch

from longca import devices, masks
from longca.bench.check.check import check_kernel
from longca.bench.check.reference import Reference, reference
from longca.bench.check.verdict import Verdict
from longca.errors import Refused
from longca.kernels import registry
from longca.kernels.base import Case, Kernel
from longca.masks import AnyMask

MOST = 0.8
ROOT = Path(__file__).parents[1]
RIGHT = (ROOT / "tests/bench/check/right/online_softmax.py", ROOT / "examples/my_kernel.py", ROOT / "examples/my_kernel_class.py")
ON_CPU = ("torch:plain", "torch:chunked", "sdpa:flash", "sdpa:math", "online_softmax", "my_kernel", "my_kernel_class")
DTYPES = {"cpu": ("fp32", "fp32", "bf16", "bf16", "fp16", "fp64"), "cuda": ("bf16", "bf16", "bf16", "fp16", "fp32")}
LENGTHS = {"cpu": (64, 512), "cuda": (128, 8192)}
HEADS = {"cpu": ((1, 1), (2, 1), (4, 2), (4, 1), (2, 2)), "cuda": ((64, 8), (8, 8), (16, 2), (8, 1))}
SIZES = {"cpu": ((8, 8), (16, 16), (32, 32), (64, 64), (128, 128), (48, 32)), "cuda": ((64, 64), (128, 128), (96, 96), (192, 128))}


@dataclass
class Worst:
    """Of one kernel and dtype: how many checks, how many called wrong, and the largest share of a tolerance with its place."""

    checks: int = 0
    wrong: int = 0
    share: float = 0.0
    where: str = ""

    def add(self, verdict: Verdict, problem: str) -> None:
        self.checks += 1
        self.wrong += not verdict.ok
        for name, error in verdict.errors.items():
            if error.ratio > self.share:
                self.share, self.where = error.ratio, f"{name} at {error.where}; {problem}"
        if verdict.problems:
            self.where = f"{verdict.reason}; {problem}"


def problems(device: str, random: Random, lengths: tuple[int, int]) -> Iterator[tuple[AnyMask, Case, int]]:
    """Endless: a mask, a case and a seed."""
    shortest, longest = lengths
    while True:
        seqlen, seed = int(shortest * (longest / shortest) ** random.random()), random.randrange(1 << 30)
        name, dtype = random.choice(masks.names()), random.choice(DTYPES[device])
        mask = masks.build(name, seqlen, seed=seed, **_narrow(name, seqlen))
        yield mask, Case(seqlen, seqlen, *random.choice(HEADS[device]), *random.choice(SIZES[device]), dtype, device), seed


def _narrow(name: str, seqlen: int) -> dict[str, int]:
    """Windows and blocks that hide something at this length."""
    sizes = {"w": seqlen // 8, "B": max(1, seqlen // 16)}
    return {key: value for key, value in sizes.items() if key in masks.find(name).defaults}


def kernels_for(device: str) -> list[str]:
    names = [name for path in RIGHT for name in registry.load_plugin(path)]
    return list(ON_CPU) if device == "cpu" else [*registry.available_labels(device), *names]


def checked(kernel: Kernel, mask: AnyMask, case: Case, wanted: Reference, seed: int) -> Verdict | None:
    """The verdict; None where the kernel refuses this problem, with and without a backward."""
    for backward in (True, False):
        asked = replace(case, backward=backward)
        if registry.available(kernel, case.device) and registry.supports(kernel, mask, asked):
            try:
                return check_kernel(kernel, registry.prepare(kernel, mask, asked).attention, asked, wanted, seed)
            except Refused:
                continue
    return None


def measure(device: str, checks: int, seconds: float, seed: int, lengths: tuple[int, int]) -> dict[tuple[str, str], Worst]:
    table: dict[tuple[str, str], Worst] = {}
    labels, start, done = kernels_for(device), time.monotonic(), 0
    for mask, case, number in problems(device, Random(seed), lengths):
        wanted = reference(mask, case, number)
        size = f"{case.head_dim}/{case.head_dim_v}"
        problem = f"{mask.name}, {case.seqlen_q} tokens, {case.heads_q}:{case.heads_kv} heads of {size}, seed {number}"
        for label in labels:
            if (verdict := checked(registry.get(label), mask, case, wanted, number)) is not None:
                table.setdefault((label, case.dtype), Worst()).add(verdict, problem)
                done += 1
        if done >= checks or time.monotonic() - start > seconds:
            return table
    raise AssertionError("problems never end")


def report(table: dict[tuple[str, str], Worst], device: str, seconds: float) -> int:
    every = list(table.values())
    print(f"{devices.model(device)}, torch {torch.__version__}; {sum(worst.checks for worst in every)} checks in {seconds:.0f} s")
    print(f"{'kernel':18} {'dtype':5} {'checks':>6} {'wrong':>5} {'worst':>6}  where")
    for (label, dtype), worst in sorted(table.items()):
        print(f"{label:18} {dtype:5} {worst.checks:6d} {worst.wrong:5d} {worst.share:6.2f}  {worst.where}")
    wrong, share = sum(worst.wrong for worst in every), max((worst.share for worst in every), default=0.0)
    print(f"called wrong: {wrong}; the worst share of the tolerance: {share:.2f}, at most {MOST} is wanted")
    return 1 if wrong or share > MOST or not every else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checks", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default=devices.kind())
    parser.add_argument("--lengths", type=int, nargs=2, metavar=("SHORTEST", "LONGEST"), help="default: 64 512 on a CPU, 128 8192 on a GPU")
    args = parser.parse_args()
    start = time.monotonic()
    table = measure(args.device, args.checks, args.seconds, args.seed, tuple(args.lengths or LENGTHS[args.device]))
    return report(table, args.device, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main())
