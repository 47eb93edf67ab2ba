"""What `longca compare` costs with two large journals: seconds and peak memory, with the limits of the project.

    PYTHONPATH=src python benchmarks/compare_cost.py [--records 50000]

Both journals hold the cells of results/h200/paper-kernel again and again with other seeds; the times of the second differ by noise.
Exit code 1 if a limit is broken.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from msgspec.structs import replace

from longca.results.files import ENVIRONMENTS, RESULTS
from longca.results.metrics import tflops
from longca.results.reading import read
from longca.results.record import Record
from longca.results.schema import encode

SOURCE = Path(__file__).parents[1] / "results" / "h200" / "paper-kernel"
MOST_S, MOST_GIB = 5.0, 0.4


def make_journal(folder: Path, count: int, noise: random.Random) -> None:
    """Writes a journal with this many records."""
    folder.mkdir()
    records = read(SOURCE).records
    with (folder / RESULTS).open("wb") as file:
        for number in range(count):
            record = records[number % len(records)]
            again = replace(_scaled(record, noise.gauss(1, 0.002)), key=f"{number:020}", seed=record.seed + number // len(records))
            file.write(encode(again) + b"\n")
    (folder / ENVIRONMENTS).write_bytes((SOURCE / ENVIRONMENTS).read_bytes())


def _scaled(record: Record, factor: float) -> Record:
    """The record with all its times multiplied."""
    if not record.ok or record.flops is None:
        return record
    times = record.times
    samples = [time * factor for time in times.samples]
    scaled = replace(times, samples=samples, median=median(samples), p20=times.p20 * factor, p80=times.p80 * factor)
    return replace(record, ms=scaled, tflops=tflops(record.flops, scaled.median))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=50_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch) / side for side in "ab"]
        for seed, folder in enumerate(folders):
            make_journal(folder, args.records, random.Random(seed))
        start = time.monotonic()
        process = subprocess.Popen([sys.executable, "-m", "longca", "compare", *map(str, folders)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds, gib = time.monotonic() - start, usage.ru_maxrss / (1 << 20)
    process.returncode = os.waitstatus_to_exitcode(status)
    print(f"compare of {args.records} and {args.records} records: {seconds:.2f} s (limit {MOST_S:g}), {gib:.2f} GiB (limit {MOST_GIB:g})")
    return 0 if process.returncode in (0, 1) and seconds <= MOST_S and gib <= MOST_GIB else 1


if __name__ == "__main__":
    sys.exit(main())
