"""Measures methods over gloo ranks on the cores of this machine, and what a cluster file for it is made from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from longca.api.run import run
from longca.errors import Unavailable
from longca.results.files import TRANSFERS

RANKS, TOKENS_PER_RANK = (2, 3, 4), (256, 512)
MASKS = ("full", "causal", "causal_document", "sliding_window_causal")
KERNEL_TOKENS = (256, 512, 1024)
SHAPE: Any = {"heads": "12:12", "head_dims": "64", "dtypes": "fp32", "passes": "fwd,bwd", "device": "cpu", "kernels": "torch:chunked"}
BUDGET_S = {"kernel": 0.3, "cp": 0.6}  # of sampling per cell


def measure_gloo(
    folder: Path,
    *,
    ranks: Sequence[int] = RANKS,
    tokens: Sequence[int] = TOKENS_PER_RANK,
    masks: Sequence[str] = MASKS,
    methods: str = "all",
    progress: bool = True,
) -> None:
    """Adds records of the kernel alone, of every method on 2, 3 and 4 ranks, and times of transfers to a folder; what it holds already is
    not measured again. Every process computes with one thread. It takes a quarter of an hour on two cores."""
    common: Any = SHAPE | {"masks": masks, "out": folder, "progress": progress}
    with one_thread():
        run(level="kernel", seqlens=KERNEL_TOKENS, budget=BUDGET_S["kernel"], **common)
        if not (folder / TRANSFERS).exists():
            write_transfers(folder / TRANSFERS)
        for number in ranks:
            lengths = [number * count for count in tokens]
            grid = "2x2" if number == 4 else None
            run(level="cp", methods=methods, nproc=number, grid=grid, seqlens=lengths, budget=BUDGET_S["cp"], **common)


@contextmanager
def one_thread() -> Iterator[None]:
    """Processes that start meanwhile compute with one thread each, as ranks do."""
    name = "OMP_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def write_transfers(path: Path) -> None:
    """Measures transfers between two ranks."""
    from longca.bench.many_devices.verify import CpRequest, make_level, make_steps, verify

    request = CpRequest("ulysses", "causal", device="cpu", nproc=2)
    level = make_level(request)
    done = verify(level, make_steps(request, level.suite, 2), lambda so_far: None)
    if done.stopped:
        raise KeyboardInterrupt
    if done.broken:
        raise Unavailable(f"transfers between two ranks could not be measured: {done.broken}.")
    path.write_text("".join(msgspec.json.encode(line).decode() + "\n" for line in done.transfers))
