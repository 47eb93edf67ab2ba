"""Is a call of a kernel timed as the replay of its CUDA graph is, which has no host code? On a GPU:

    longca run --masks causal,causal_document --seqlens 8K --kernels fa4:bands,cudnn_flex --out CALLED
    longca run --masks causal,causal_document --seqlens 8K --kernels fa4:bands,cudnn_flex --cudagraph --out REPLAYED
    PYTHONPATH=src python benchmarks/clock_graphs.py CALLED REPLAYED [--out FILE]

Prints, for each kernel and pass, the replay's time as a share of the call's. Both are measured on one machine, one after the other.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from msgspec.structs import replace

from longca.results.reading import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("called", type=Path)
    parser.add_argument("replayed", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    called = {(record.label, record.problem): record for record in read(args.called).records if record.ok}
    rows, shares = [], dict[tuple[str, str], list[float]]()
    for replay in read(args.replayed).records:
        record = called.get((replay.label, replace(replay.problem, cudagraph=False)))
        if replay.ok and record is not None:
            problem, ms, graph_ms = record.problem, record.times.median, replay.times.median
            rows.append(
                {"mask": problem.mask, "seqlen": problem.seqlen, "pass": str(problem.pass_), "kernel": record.label}
                | {"ms": ms, "graph_ms": graph_ms}
            )
            shares.setdefault((record.label, str(problem.pass_)), []).append(graph_ms / ms)
    for (kernel, pass_), found in shares.items():
        print(f"{kernel:18} {pass_}: {len(found)} cells; replayed / called {min(found):.4f} to {max(found):.4f}")
    off = sorted(abs(share - 1) for found in shares.values() for share in found)
    if not off:
        raise SystemExit("no cell was measured both ways.")
    print(f"all {len(off)} cells: median difference {statistics.median(off):.2%}, at most {off[-1]:.2%}")
    if args.out:
        args.out.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
