"""Compile what fa4 and band_cute need for a suite, ahead of time and without a GPU, into a folder that a machine with GPUs then uses.

    python benchmarks/compile_fa4.py paper-kernel --cache out/fa4-cache
    python benchmarks/compile_fa4.py paper-kernel --masks causal,causal_document --seqlens 8K --heads 32:8,8:1 --cache out/fa4-cache
    python benchmarks/compile_fa4.py paper-sparse --seqlens 16K --source nsa --cache out/fa4-cache
    python benchmarks/compile_fa4.py paper-cp --nproc 8 --cache out/fa4-cache

On the other machine, with the same versions of Python and of the packages:

    FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED=1 FLASH_ATTENTION_CUTE_DSL_CACHE_DIR=out/fa4-cache longca run paper-kernel

A run that finds its kernels there reports a `compile_ms` of almost nothing. Kernels are compiled for Hopper.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from longca import devices
from longca.bench.many_devices.grids import plan_of
from longca.bench.many_devices.level import ManyDevices
from longca.bench.plan import suite as suites
from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import make_cells, mask_of
from longca.bench.plan.suite import Suite
from longca.errors import LongcaError, Refused, Unavailable
from longca.kernels import registry
from longca.kernels.base import No
from longca.results.record import LevelName

HOPPER = {"name": "NVIDIA H200", "compute_cap": "9.0", "memory.total": "143771", "driver_version": ""}
AXES = {  # of a suite, with the flags that change them
    "masks": ("--masks", "these masks instead of the suite's"),
    "seqlens": ("--seqlens", "these lengths; kernels are mostly the same for all lengths, so one suffices"),
    "heads": ("--heads", "these query and KV heads, such as 32:8"),
    "head_dims": ("--head-dim", "these head sizes, such as 64 or 192/128"),
}
TARGET = {"FLASH_ATTENTION_ARCH": "sm_90", "CUTE_DSL_ARCH": "sm_90a", "FLASH_ATTENTION_NUM_SMS": "132"}


def pretend(gpus: int, cache: Path) -> None:
    """This machine compiles as one with Hopper GPUs would; before FA4 is imported, which reads these settings once."""
    cache.mkdir(parents=True, exist_ok=True)
    os.environ |= TARGET | {"FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED": "1", "FLASH_ATTENTION_CUTE_DSL_CACHE_DIR": str(cache)}
    devices.gpus = lambda: [HOPPER] * gpus  # type: ignore[assignment]  # a cached function; this one costs nothing
    missing = registry.available(registry.get("fa4"), "cuda")
    if isinstance(missing, No):
        raise Unavailable(f"fa4 cannot be compiled here: {missing.reason}.")


def cells_of(suite: Suite, gpus: int) -> Iterator[Cell]:
    """One cell per problem: passes are compiled together."""
    if suite.level is LevelName.CP:
        cells = ManyDevices(suite.changed(nproc=gpus, kernels=("fa4",)), "cuda", nproc=gpus).cells(())
    else:
        cells = make_cells(suite, ["fa4", "band_cute"], "cuda")
    yield from dict.fromkeys(cell.job for cell in cells)


def compile_for(cell: Cell) -> None:
    """Prepares the kernel of a cell; nothing is kept but what FA4 writes into its cache."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mask = mask_of(cell.problem)
    case = cell.case(mask)
    with FakeTensorMode(allow_non_fake_inputs=True):
        if cell.split is not None:
            from longca.parallel.comm.local import World

            plan = plan_of(cell, mask, cell.grad)
            for comm in World(plan.ranks, "cpu").comms():
                plan.program(comm)
            return
        for kernel in registry.choices(cell.kernel):
            if registry.available(kernel, "cuda") and registry.supports(kernel, mask, case):
                kernel.prepare(mask, case)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("suite", help="a name from `longca ls suites`, or a TOML file")
    parser.add_argument("--cache", required=True, type=Path, metavar="DIR", help="where FA4 keeps what it compiled")
    for axis, (flag, about) in AXES.items():
        parser.add_argument(flag, dest=axis, metavar="A,B", help=about)
    parser.add_argument("--source", help="of block patterns, such as nsa; instead of the suite's")
    parser.add_argument("--nproc", type=int, default=8, metavar="N", help="GPUs of the other machine, for suites of context parallelism")
    args = parser.parse_args()
    try:
        pretend(args.nproc, args.cache)
        start = time.monotonic()
        given = {axis: tuple(text.split(",")) for axis in AXES if (text := getattr(args, axis))}
        suite = suites.find(args.suite).changed(**given, source=args.source)
        suites.check(suite)
        for cell in cells_of(suite, args.nproc):
            with suppress(Refused):  # as the run will say itself
                compile_for(cell)
            made = len(list(args.cache.rglob("*.o")))
            print(
                f"\r{cell.problem.mask} {cell.problem.seqlen}: {made} kernels, {time.monotonic() - start:.0f} s\033[K", end="", flush=True
            )
        print()
    except LongcaError as error:
        print(f"compile_fa4: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
