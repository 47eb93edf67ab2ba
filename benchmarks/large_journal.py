"""What a large journal costs its readers: seconds, peak memory and, for the page, megabytes.

    PYTHONPATH=src python benchmarks/large_journal.py [--records 50000] [--keep DIR]

The journal is made up: two devices and four shapes, 12 masks, 8 lengths, 14 kernels of which some fail, 3 seeds, both passes, 20 samples a
record. `compare` takes two journals of one device with as many records each. Limits are those of the project: `report` 3 s, 0.4 GiB and
10 MB, `compare` 5 s and 0.4 GiB. Each command runs in a process of its own, with compiled modules, as in an installed package: they are
compiled by a run on small journals. On a busy machine, look at the seconds of CPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longca import masks
from longca.results.record import Environment, MaskEntry
from longca.results.schema import encode

DEVICES = {"first": "NVIDIA H200", "second": "NVIDIA H100"}
SHAPES = ((64, 8, 128, 128), (16, 16, 64, 64), (128, 128, 192, 128), (32, 4, 128, 128))
KERNELS = (
    *(
        "fa4:bands",
        "fa4:native",
        "fa4:varlen",
        "cudnn",
        "cudnn_flex:rows",
        "cudnn_flex:documents",
        "fa3",
        "fa2:torch",
        "flex",
        "sdpa:flash",
    ),
    *("sdpa:cudnn", "flashinfer", "torch:chunked", "torch:plain"),
)
FAILURES = (
    ("unsupported", "it cannot do this mask: only causal and full ones"),
    ("oom", "out of memory: it asked for {} GiB at once"),
    ("skipped", "O(S²) memory, at least {} GiB: --full runs it"),
    ("error", "RuntimeError: invalid configuration argument ({})"),
)
LENGTHS = tuple(1024 * k for k in (1, 2, 4, 8, 16, 24, 32, 48))
SEEDS = (1, 2, 3)
SAMPLES = 20
Shape = tuple[int, int, int, int]


class Command(NamedTuple):
    """A command to measure: its words after `longca` for a folder of journals, and its limits."""

    words: Callable[[Path], list[str]]
    seconds: float
    gib: float


COMMANDS = {
    "report": Command(lambda folder: ["report", str(folder / "journal"), "-o", str(folder / PAGE)], 3.0, 0.4),
    "compare": Command(lambda folder: ["compare", str(folder / "before"), str(folder / "after")], 5.0, 0.4),
}
PAGE = "page.html"
SMALL = 300  # records
COMPARED_SHAPES = (*SHAPES, *((heads, 8, 128, 128) for heads in (8, 16, 24, 40)))  # enough for 50,000 records of one device
LARGEST_PAGE = 10e6


def make_journals(folder: Path, records: int) -> None:
    """Writes the journal for `report`, and the two for `compare`."""
    make_journal(folder / "journal", records)
    for seed, side in enumerate(("before", "after")):
        make_journal(folder / side, records, {"first": DEVICES["first"]}, COMPARED_SHAPES, seed)


def make_journal(folder: Path, records: int, devices: Mapping[str, str] = DEVICES, shapes: Sequence[Shape] = SHAPES, seed: int = 0) -> None:
    """Writes a journal with so many records; `seed` chooses the times."""
    dice = random.Random(seed)
    drawn = {(name, n, seed): masks.build(name, n, seed=seed) for name in masks.names() for n in LENGTHS for seed in SEEDS}
    places = itertools.product(devices, shapes, masks.names(), LENGTHS, SEEDS, KERNELS, ("fwd", "bwd"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "results.jsonl").open("w") as file:
        for number, place in enumerate(itertools.islice(places, records)):
            environment, shape, name, seqlen, seed, kernel, pass_ = place
            record = _record(number, environment, shape, drawn[name, seqlen, seed], kernel, pass_, seed, dice)
            file.write(json.dumps(record, separators=(",", ":")) + "\n")
    with (folder / "masks.jsonl").open("wb") as lines:
        for (name, n, seed), mask in drawn.items():
            entry = MaskEntry(digest=mask.digest, mask=name, seqlen_q=n, seqlen_k=n, area=mask.area, bands=mask.table, seed=seed)
            lines.write(encode(entry) + b"\n")
    facts = {name: Environment(device=device, device_kind="cuda", packages={"torch": "2.11.0"}) for name, device in devices.items()}
    (folder / "env.json").write_text(json.dumps({name: json.loads(encode(environment)) for name, environment in facts.items()}))


def _record(
    number: int, environment: str, shape: tuple[int, ...], mask: Any, kernel: str, pass_: str, seed: int, dice: random.Random
) -> dict[str, Any]:
    base, _, variant = kernel.partition(":")
    heads_q, heads_kv, head_dim, head_dim_v = shape
    area, n = mask.area, mask.seqlen_k
    flops = 2 * area * heads_q * (head_dim + head_dim_v if pass_ == "fwd" else 3 * head_dim + 2 * head_dim_v)
    record: dict[str, Any] = {
        "schema": 2, "key": f"{number:020x}", "env": environment, "level": "kernel", "kernel": base, "variant": variant or None,
        "asked": kernel, "mask": mask.name, "params": mask.params, "mask_digest": mask.digest, "seed": seed, "seqlen": n,
        "seqlen_q": n, "seqlen_k": n,
        "heads_q": heads_q, "heads_kv": heads_kv, "head_dim": head_dim, "head_dim_v": head_dim_v, "dtype": "bf16", "deterministic": False,
        "grad": True, "pass": pass_, "given": {"grad": pass_ == "fwd"}, "area": area, "flops": flops, "build_ms": _near(1.0, dice),
        "plan_ms": _near(2.0, dice), "versions": {"torch": "2.11.0", base: "1.2.3"}, "backward_kind": "functional",
    }  # fmt: skip
    if dice.random() < 0.2:
        status, reason = dice.choice(FAILURES)
        return record | {"status": status, "reason": reason.format(n // 64)}
    ms = flops / 1e9 / (dice.uniform(0.3, 0.7) * 989)
    samples = sorted(float(f"{ms * dice.uniform(0.99, 1.01):.6g}") for _ in range(SAMPLES))
    median = (samples[9] + samples[10]) / 2
    times = {"median": median, "p20": samples[4], "p80": samples[15], "n": SAMPLES, "samples": samples, "spread": 0.003, "stop": "target"}
    tolerance = _near(1e-3, dice)
    check = {name: {"error": _near(tolerance / 8, dice), "allowed": tolerance} for name in ("out", "lse", "dq", "dk", "dv")}
    tflops = flops / median / 1e9
    return record | {
        "status": "ok", "reason": "", "check": check, "ms": times, "noisy": dice.random() < 0.1, "call_ms": _near(0.1, dice),
        "host_bound": False, "tflops": tflops, "mfu": tflops / 989, "peak_gib": _near(n / 8192, dice), "compile_ms": _near(900.0, dice),
        "clock_mhz": dice.choice((1500.0, 1755.0, 1980.0)), "watts": _near(600.0, dice),
    }  # fmt: skip


def _near(value: float, dice: random.Random) -> float:
    return float(f"{value * dice.uniform(0.7, 1.4):.6g}")


def start(command: Command, folder: Path, compiled: Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(compiled)}
    return subprocess.Popen([sys.executable, "-m", "longca", *command.words(folder)], stdout=subprocess.DEVNULL, env=environment)


def measure(name: str, command: Command, folder: Path, compiled: Path) -> bool:
    """Runs a command, prints what it took, and says whether it kept its limits."""
    begin = time.monotonic()
    process = start(command, folder, compiled)
    _, code, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(code)
    seconds, cpu, gib = time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / (1 << 20)
    page = (folder / PAGE).stat().st_size if name == "report" else 0
    size = f", page {page / 1e6:.1f} MB (limit {LARGEST_PAGE / 1e6:.0f})" if page else ""
    took = f"{seconds:.2f} s (limit {command.seconds:g}; {cpu:.2f} s of CPU)"
    print(f"{name}: {took}, {gib:.2f} GiB (limit {command.gib:g}){size}, exit code {process.returncode}")
    return process.returncode in (0, 1) and seconds <= command.seconds and gib <= command.gib and page <= LARGEST_PAGE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--keep", metavar="DIR", help="make the journals in this folder and leave them there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        small, compiled, large = (Path(scratch) / name for name in ("small", "compiled", "large"))
        large = Path(args.keep or large)
        make_journals(small, SMALL)
        make_journals(large, args.records)
        for command in COMMANDS.values():
            start(command, small, compiled).wait()
        kept = [measure(name, command, large, compiled) for name, command in COMMANDS.items()]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
