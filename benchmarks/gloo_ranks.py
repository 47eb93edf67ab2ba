"""Measures methods over gloo ranks on the cores of this machine, and what a cluster file for it is made from: `results/cpu/gloo`.

    PYTHONPATH=src OMP_NUM_THREADS=1 python benchmarks/gloo_ranks.py out/gloo
    longca calibrate out/gloo --base cpu-gloo --out out/gloo.toml
    longca simulate --cluster out/gloo.toml --against out/gloo

What the folder holds already is not measured again. It takes a quarter of an hour on two cores, on which nothing else should run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

import longca
from longca.results.files import TRANSFERS

COMMON: Any = {
    "masks": ("full", "causal", "causal_document", "sliding_window_causal"),
    "heads": "12:12",
    "head_dims": "64",
    "dtypes": "fp32",
    "passes": "fwd,bwd",
    "device": "cpu",
    "kernels": "torch:chunked",
}


def main() -> None:
    if len(sys.argv) != 2 or os.environ.get("OMP_NUM_THREADS") != "1":
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    longca.run(level="kernel", seqlens=(256, 512, 1024), budget=0.3, out=folder, **COMMON)
    if not (folder / TRANSFERS).exists():
        found = longca.verify_cp("ulysses", "causal", device="cpu", nproc=2)
        (folder / TRANSFERS).write_text("".join(msgspec.json.encode(line).decode() + "\n" for line in found.transfers))
    for ranks in (2, 3, 4):
        grid = "2x2" if ranks == 4 else None
        longca.run(level="cp", methods="all", nproc=ranks, grid=grid, seqlens=(256 * ranks, 512 * ranks), budget=0.6, out=folder, **COMMON)


if __name__ == "__main__":
    main()
