"""What building a large mask costs, in time and memory: `python benchmarks/mask_cost.py`.

Each scenario runs three times, each time in a new process, as a user would meet it; the median time and the highest memory count.
Importing is not part of the time.
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from longca import lengths, masks

M = 1 << 20
RUNS = 3


class Scenario(NamedTuple):
    about: str
    seconds: float  # the most it may take
    gibibytes: float  # the most memory the process may ever have held
    work: Callable[[], dict[str, int]]


def everything(mask: masks.Mask) -> dict[str, int]:
    """Area, row intervals, and the lists of tiles by row and by column."""
    starts, _ = mask.row_intervals()
    tiles = mask.tiles(128, 128)
    by_row, by_col = tiles.by_row(), tiles.by_col()
    assert len(by_row.full_idx) == len(by_col.full_idx)
    return {"area": mask.area, "intervals": len(starts), "full_tiles": len(by_row.full_idx), "partial_tiles": len(by_row.partial_idx)}


def many_documents() -> dict[str, int]:
    rng = random.Random(0)
    cuts = sorted(rng.sample(range(1, M), 9_999))
    drawn = [end - start for start, end in zip([0, *cuts], [*cuts, M], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lengths.json"
        path.write_text(json.dumps(drawn))
        clock.start()
        return everything(masks.causal_document(M, documents=lengths.read_lengths(path)))


def global_window() -> dict[str, int]:
    clock.start()
    return everything(masks.global_sliding_window(M))


def algebra() -> dict[str, int]:
    """Each operation on 10,000 documents and a window, 10,000 overlapping bands united; the slowest counts."""
    length, documents = 1_000_000, [100] * 10_000
    inside, window = masks.full_document(length, documents=documents), masks.sliding_window_causal(length, w=10)
    overlapping = [(100 * n, 100 * n + 150, 100 * n, 0, 100 * n + 100, 0) for n in range(9_999)]
    operations = {
        "&": lambda: inside & window,
        "|": lambda: inside | window,
        "-": lambda: inside - window,
        "~": lambda: ~inside,
        "unite": lambda: masks.Mask.of(length, length, overlapping, overlapping="unite"),
    }
    counted, seconds = {}, {}
    for name, operation in operations.items():
        clock.start()
        counted[name] = operation().area
        seconds[name] = clock.read()
    clock.began = time.perf_counter() - max(seconds.values())
    return counted | {f"ms of {name}": round(1e3 * second) for name, second in seconds.items()}


def many_ranks() -> dict[str, int]:
    clock.start()
    mask = masks.causal_document(16 * M, distribution="prolong64k")
    share = 16 * M // 1024
    parts = [mask.rows([(rank * share, (rank + 1) * share)]) for rank in range(1024)]
    assert sum(part.area for part in parts) == mask.area
    return {"area": mask.area, "documents": len(mask.documents or ()), "bands of all ranks": sum(len(part.table) for part in parts)}


class Clock:
    def start(self) -> None:
        self.began = time.perf_counter()

    def read(self) -> float:
        return time.perf_counter() - self.began


clock = Clock()
SCENARIOS = {
    "many_documents": Scenario("1M tokens, 10,000 documents of a file: build, area, row intervals, tile lists", 1, 1, many_documents),
    "global_window": Scenario("global_sliding_window, 1M tokens: build, area, row intervals, tile lists", 1, 1, global_window),
    "algebra": Scenario("1M tokens, 10,000 documents: the slowest of a & b, a | b, a - b, ~a, and of uniting bands", 1, 1, algebra),
    "many_ranks": Scenario("16M tokens by prolong64k: build, area, cut into the rows of 1,024 ranks", 5, 4, many_ranks),
}


def measure(name: str) -> None:
    """In the process of one scenario: print what it cost as JSON."""
    counted = SCENARIOS[name].work()
    seconds = clock.read()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / M  # it counts kilobytes, so this is GiB
    print(json.dumps({"seconds": seconds, "gibibytes": peak, "counted": counted}))


def report(name: str, scenario: Scenario) -> bool:
    command = [sys.executable, __file__, name]
    runs = [json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(RUNS)]
    seconds = sorted(run["seconds"] for run in runs)
    peak = max(run["gibibytes"] for run in runs)
    met = bool(seconds[RUNS // 2] < scenario.seconds and peak < scenario.gibibytes)
    print(scenario.about)
    print(f"  {seconds[RUNS // 2]:.3f} s ({seconds[0]:.3f} to {seconds[-1]:.3f}), limit {scenario.seconds} s")
    print(f"  {peak:.2f} GiB, limit {scenario.gibibytes} GiB")
    print(f"  {', '.join(f'{what} {number}' for what, number in runs[0]['counted'].items())}")
    print(f"  {'meets its limits' if met else 'MISSES ITS LIMITS'}")
    return met


def main() -> int:
    if len(sys.argv) == 2:
        measure(sys.argv[1])
        return 0
    met = [report(name, scenario) for name, scenario in SCENARIOS.items()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
