"""What large simulations cost: seconds by the clock, seconds of CPU, and memory, beside what is asked.

    PYTHONPATH=src python benchmarks/simulate_cost.py [NAME ...] | tee results/cpu/simulate_cost.txt

Each case is one `longca simulate` in a process of its own, which starts more on all cores. Memory is the largest sum over these processes
of what belongs to each (PSS, looked at twice a second). Exit code 1 where a case fails or takes more than is asked; the others run all the
same. On a busy machine, look at the seconds of CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30
INTERVAL = 0.5  # seconds between two looks at the memory
LONGEST = 900  # seconds after which a case is given up


class Case(NamedTuple):
    """A simulation, the seconds asked, and the GiB asked."""

    words: str
    seconds: float
    gib: float = 4.0


COMMON = "--cluster h100-ib --masks causal_document --json"
CASES = {
    "best-64": Case("--gpus 64 --seqlen 128K --best --seeds 1", 5),
    "best-64-packs": Case("--gpus 64 --seqlen 128K --best", 20),
    "best-256": Case("--gpus 256 --per-gpu 8K --best --seeds 1 --passes fwd+bwd", 20),
    "best-1024": Case("--gpus 1024 --per-gpu 8K --best --seeds 1 --passes fwd+bwd", 60),
    "all-256": Case("--gpus 256 --per-gpu 8K --methods all --seeds 1 --passes fwd+bwd", 60),
    "all-96": Case("--gpus 96 --seqlen 768K --methods all --seeds 1 --passes fwd,bwd", 10),
    "magi-1024": Case("--gpus 1024 --seqlen 8M --methods magi --seeds 1 --passes fwd,bwd", 60),
    "usp-1024": Case("--gpus 1024 --seqlen 8M --methods usp --seeds 1 --passes fwd,bwd", 60),
    "ring_p2p-256": Case("--gpus 256 --seqlen 2M --methods ring_p2p --seeds 1 --passes fwd,bwd", 60),
}


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float
    gib: float
    results: int  # lines of JSON with a time
    problem: str = ""


def measure(case: Case) -> Cost:
    """The cost of a case; `problem` says why it has no results."""
    command = [sys.executable, "-m", "longca", "simulate", *case.words.split(), *COMMON.split()]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start, most = time.monotonic(), 0
        process = subprocess.Popen(command, stdout=output, stderr=errors, start_new_session=True)
        problem = ""
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            most = max(most, sum(map(own_bytes, group(process.pid))))
            if time.monotonic() - start > LONGEST:
                problem = f"given up after {LONGEST} s"
                os.killpg(process.pid, 9)
            time.sleep(INTERVAL)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)  # waited for here, not by subprocess
        output.seek(0)
        errors.seek(0)
        results = sum('"status":"ok"' in line for line in output)
        if not problem and (process.returncode or not results):
            problem = (errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return Cost(seconds, usage.ru_utime + usage.ru_stime, most / GIB, results, problem)


def group(leader: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) == leader:
                found.append(int(entry.name))
    return found


def own_bytes(process: int) -> int:
    """The memory of a process, of what it shares its part."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in CASES]
    if unknown:
        print(f"{unknown[0]} is no case; cases are {', '.join(CASES)}.", file=sys.stderr)
        return 2
    print(f"longca simulate {COMMON}; {len(os.sched_getaffinity(0))} cores, load average before {os.getloadavg()[0]:.1f}\n")
    print(f"{'case':14} {'command':42} {'seconds':>8} {'asked':>6} {'CPU':>6} {'GiB':>5} {'asked':>6} {'results':>8}", flush=True)
    missed = False
    for name in names or CASES:
        case = CASES[name]
        cost = measure(case)
        late = bool(cost.problem) or cost.seconds > case.seconds or cost.gib > case.gib
        missed |= late
        figures = f"{cost.seconds:8.1f} {case.seconds:6g} {cost.cpu_seconds:6.1f} {cost.gib:5.2f} {case.gib:6g} {cost.results:8}"
        print(f"{name:14} {case.words:42} {figures}{'  MISSED' if late else ''} {cost.problem}".rstrip(), flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
