"""Hardware counters of a kernel's GPU kernels, by NVIDIA's `ncu`: it runs one call of each pass in a process of its own."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import msgspec

from longca.bench.plan.cell import Cell
from longca.text import short

METRICS = {  # by the title of their column
    "ms": "gpu__time_duration.sum",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "tensor cores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "memory": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "L2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "stalled on memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "stalled on barriers": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
}
UNITS_OF_MS = {"ns": 1e-6, "nsecond": 1e-6, "us": 1e-3, "usecond": 1e-3, "ms": 1.0, "msecond": 1.0, "s": 1e3, "second": 1e3}
NO_RIGHT = "ERR_NVGPUCTRPERM"
DEADLINE_S = 300.0


class Counted(NamedTuple):
    """One GPU kernel: its name, and the values of the metrics that ncu knows here, by their titles."""

    name: str
    values: dict[str, float]


class NcuFailed(Exception):
    """ncu gives no counters; the sentence says why."""


def count(cell: Cell, plugin: str | None) -> list[Counted]:
    """The counters of one call of a cell's pass; raises NcuFailed where ncu does not run."""
    program = shutil.which("ncu")
    if program is None:
        raise NcuFailed("ncu was not found; it is part of the CUDA toolkit (Nsight Compute).")
    own = [sys.executable, "-m", __name__, msgspec.json.encode((cell, plugin)).decode()]
    options = ["--csv", "--page", "raw", "--clock-control", "none", "--profile-from-start", "off"]
    command = [program, *options, "--metrics", ",".join(METRICS.values()), *own]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NcuFailed(f"ncu failed: {short(str(error), 120)}.") from error
    printed = done.stdout + done.stderr
    if NO_RIGHT in printed:
        raise NcuFailed(f"ncu may not read the counters of this GPU ({NO_RIGHT}); run as root, or let the administrator allow it.")
    counted = list(parse(done.stdout))
    if done.returncode or not counted:
        last = next((line for line in reversed(printed.splitlines()) if line.strip()), "it printed nothing")
        raise NcuFailed(f"ncu failed with exit code {done.returncode}: {short(last.strip(), 160)}.")
    return counted


def parse(text: str) -> Iterator[Counted]:
    """The kernels in what `ncu --csv --page raw` prints: lines of its own and of the program, a line of titles, one of units, and one line
    for each kernel. A metric that ncu does not know here has no number."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[start:]))
    for row in rows[1:]:
        values = dict[str, float]()
        for title, metric in METRICS.items():
            number = (row.get(metric) or "").replace(",", "")
            if number.replace(".", "", 1).isdecimal():
                values[title] = float(number) * (UNITS_OF_MS.get(rows[0][metric], 1.0) if title == "ms" else 1.0)
        yield Counted(row["Kernel Name"], values)


def main(arguments: Sequence[str]) -> None:
    """Runs one call that is counted, after one that compiles."""
    cell, plugin = msgspec.json.decode(arguments[0], type=tuple[Cell, str | None])
    from longca.bench.check.calls import Calls
    from longca.bench.check.check import KernelSubject
    from longca.kernels import registry
    from longca.kernels.inputs import make

    if plugin:
        registry.load_plugin(plugin)
    mask, pass_ = cell.problem.build_mask(), cell.problem.pass_
    case = cell.case(mask)
    kernel, attention = registry.prepare(registry.choose(cell.kernel, mask, case), mask, case)
    calls = Calls(KernelSubject(kernel, attention, case), make(case, cell.problem.seed, kernel.layout), case)
    calls.keep(pass_)
    call = calls.load(pass_)
    call()
    with counted(case.device == "cuda"):
        call()


@contextmanager
def counted(cuda: bool) -> Iterator[None]:
    """What ncu counts: all that the process does on the GPU. A range of NVTX is of one thread, and torch's backward runs in its own."""
    import torch

    if not cuda:
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    yield
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
