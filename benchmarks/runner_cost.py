"""What the runner itself costs per cell, beyond building, checking and measuring; and whether its memory stays flat.

    python benchmarks/runner_cost.py [CELLS]

Runs about 1,000 tiny cells, each a job of its own. Ends with exit code 1 where a cell costs more than 0.3 s, or memory grows by more
than 20 MiB.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from longca.bench.one_device.level import OneDevice
from longca.bench.plan.jobs import Job, make_jobs
from longca.bench.plan.suite import Suite
from longca.bench.run import environment, runner
from longca.bench.run.campaign import plan_level
from longca.results.journal import Journal
from longca.results.problem import Pass
from longca.results.record import Record
from longca.results.settings import ClockSettings

MOST_S, MOST_MIB = 0.3, 20.0


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


class Watcher:
    """Notes the memory along the way."""

    def __init__(self) -> None:
        self.memory: list[float] = []

    def begin(self, job: Job) -> None:
        self.memory.append(resident_mib())

    def finished(self, record: Record) -> None:
        assert record.ok, record.reason

    def say(self, text: str) -> None:
        print(text)


def main(count: int) -> int:
    lengths = tuple(str(16 + i) for i in range(-(-count // 12)))
    shape: dict[str, Any] = {"heads": ("1:1",), "head_dims": ("8",), "dtypes": ("fp32",), "passes": (Pass.FWD,)}
    clock = ClockSettings(warmup_s=0.0, budget_s=0.001, least=3)
    params = {"sliding_window": {"w": 3}, "sliding_window_causal": {"w": 3}, "block_causal_document": {"B": 4}}
    suite = Suite(kernels=("torch:plain",), seqlens=lengths, seeds=(1,), clock=clock, params=params, **shape)
    start = time.perf_counter()
    level = OneDevice(suite, "cpu")
    jobs = make_jobs(plan_level(level))
    print(f"{len(jobs)} cells planned in {time.perf_counter() - start:.2f} s")
    watcher = Watcher()
    with tempfile.TemporaryDirectory() as folder, Journal(folder) as journal:
        runner.make_cache(journal.folder)
        executor = level.executor(environment.device_model("cpu"), journal.folder / runner.CACHE, full=False)
        start = time.perf_counter()
        runner.execute(jobs, executor, journal, "", watcher)
        wall = time.perf_counter() - start
    busy = sum(executor.spent_s.values())
    cost = (wall - busy) / len(jobs)
    grown = watcher.memory[-1] - watcher.memory[len(watcher.memory) // 10]
    print(f"{wall:.1f} s in all, {busy:.1f} s of them building, checking and measuring: {cost * 1e3:.1f} ms per cell for the runner")
    first, last = watcher.memory[0], watcher.memory[-1]
    print(f"memory of the runner: {first:.0f} MiB at the start, {last:.0f} MiB at the end, {grown:+.1f} MiB after the first tenth")
    return 1 if cost > MOST_S or grown > MOST_MIB else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
