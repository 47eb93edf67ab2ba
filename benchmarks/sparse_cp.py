"""What block sparsity saves when keys must travel: simulated bytes and times of block patterns on 8 to 96 GPUs, a JSON object per line.

    PYTHONPATH=src python benchmarks/sparse_cp.py > results/simulated/sparse_cp.jsonl
    PYTHONPATH=src python benchmarks/sparse_cp.py 8 --cluster h200-shared-8 >> results/simulated/sparse_cp.jsonl

8K tokens per GPU, 64:8 heads, blocks of 128. The sources select blocks by LongCA's random q and k. An hour on two busy cores, most of it
for 64 and 96 GPUs, where q alone has 4 to 6 billion numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

import longca

GPUS = (8, 16, 32, 64, 96)
PATTERNS: dict[str, dict[str, Any]] = {
    "msa, 16 blocks": {"source": "msa"},
    "nsa .05": {"source": "nsa", "params": {"b": 128, "ratio": 0.05}},
    "moba .05": {"source": "moba", "params": {"b": 128, "ratio": 0.05}},
    "random .05": {"params": {"b": 128, "ratio": 0.05}},
    "random .2": {"params": {"b": 128, "ratio": 0.2}},
    "random .5": {"params": {"b": 128, "ratio": 0.5}},
}


def main(gpus: Sequence[int], cluster: str) -> None:
    for number in gpus:
        for name, asked in PATTERNS.items():
            simulation = longca.simulate(
                "ulysses,ring_allgather,block_cast", "uniform_block", gpus=number, seeds=1, progress=False, cluster=cluster, **asked
            )
            for result, row in zip(simulation.results, simulation.rows, strict=True):
                line = {"cluster": cluster, "pattern": name, **{key: row[key] for key in ("gpus", "method", "pass", "status")}}
                if result.prediction is not None:
                    sent = result.prediction.sent_bytes
                    line |= {"ms": round(row["ms"], 3), "sent_bytes": max(sent), "mean_sent_bytes": sum(sent) // len(sent)}
                    line |= {key: round(row[key], 3) for key in ("compute_share", "exposed_share", "late_share", "imbalance")}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gpus", type=int, nargs="*", default=GPUS)
    parser.add_argument("--cluster", default="h100-ib")
    args = parser.parse_args()
    main(args.gpus, args.cluster)
