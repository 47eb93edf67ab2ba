"""How long block_triton's work lists take, from a pattern on the host to lists on the device, and how much memory that needs.

python benchmarks/block_lists.py [--seqlen 128K --block 64 --heads-kv 8 --ratio .5]

Exit code 1 where that takes more than 100 ms or 4 GiB on a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch

from longca import masks
from longca.kernels.backends.block_triton._launch import Launcher
from longca.kernels.backends.block_triton.kernel import candidates
from longca.kernels.base import Case
from longca.text import parse_size

STEPS, ROUNDS = ("forward", "dq", "dkv"), 7
MOST_MS, MOST_GIB = 100.0, 4.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seqlen", default="128K")
    parser.add_argument("--block", type=int, default=64)
    parser.add_argument("--heads-kv", type=int, default=8)
    parser.add_argument("--ratio", type=float, default=0.5)
    args = parser.parse_args()
    device, seqlen = "cuda" if torch.cuda.is_available() else "cpu", parse_size(args.seqlen)
    mask = masks.build("uniform_block", seqlen, b=args.block, heads=args.heads_kv, ratio=args.ratio)
    case = Case(seqlen, seqlen, 8 * args.heads_kv, args.heads_kv, 128, 128, "bf16", device)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        launcher = Launcher(mask, case)
        for step in STEPS:
            launcher.lower(step, candidates(mask, case, step)[0])
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    peak_gib = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
    peak = f", peak {peak_gib:.2f} GiB" if device == "cuda" else ""
    about = f"{args.seqlen} tokens, blocks of {args.block}, {args.heads_kv} KV heads, ratio {args.ratio:g}, {device}"
    print(f"{about}: {statistics.median(times):.1f} ms for the lists of {', '.join(STEPS)}{peak} (first time {times[0]:.1f} ms)")
    return int(device == "cuda" and (statistics.median(times) > MOST_MS or peak_gib > MOST_GIB))


if __name__ == "__main__":
    sys.exit(main())
