"""What repeats between devices of one name: times as measured, or times at one clock?

    PYTHONPATH=src python benchmarks/clock_repeats.py results/h200/clock_repeats.jsonl [--add JOURNAL --machine NAME]

Each row of the file is a cell on one machine: milliseconds as measured, and the SM clock meanwhile. --add puts the cells of a journal
there. Prints, for the cells that all machines have, how far the slowest machine is from the fastest.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from pathlib import Path

from longca.results.metrics import SETTLED_MHZ
from longca.results.reading import read

CELL = ("kernel", "mask", "seqlen", "pass")
Row = dict[str, str | int | float]


def rows_of(journal: Path, machine: str) -> list[Row]:
    rows = list[Row]()
    for record in read(journal).records:
        if record.ok and (mhz := record.times.clock_mhz):
            ms = record.times.median * (record.times.at_mhz or mhz) / mhz
            cell = (record.label, record.problem.mask, record.problem.seqlen, str(record.problem.pass_))
            rows.append(dict(zip(CELL, cell, strict=True)) | {"machine": machine, "ms": round(ms, 5), "mhz": round(mhz, 1)})
    return rows


def apart(values: list[float]) -> float:
    return max(values) / min(values) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--add", type=Path, metavar="JOURNAL")
    parser.add_argument("--machine", default="new")
    args = parser.parse_args()
    rows: list[Row] = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows.exists() else []
    if args.add:
        rows += rows_of(args.add, args.machine)
        args.rows.write_text("".join(json.dumps(row) + "\n" for row in rows))
    machines = {str(row["machine"]) for row in rows}
    cells = defaultdict[tuple[object, ...], dict[str, Row]](dict)
    for row in rows:
        cells[tuple(row[field] for field in CELL)][str(row["machine"])] = row
    measured, at_clock = [], []
    for cell, found in cells.items():
        if len(found) < len(machines):
            continue
        measured.append(apart([float(row["ms"]) for row in found.values()]))
        at_clock.append(apart([float(row["ms"]) * float(row["mhz"]) / SETTLED_MHZ["H200"] for row in found.values()]))
        print(f"{' '.join(map(str, cell)):<52} as measured {measured[-1]:6.2%}   at one clock {at_clock[-1]:6.2%}")
    for name, values in (("as measured", measured), ("at one clock", at_clock)):
        print(f"{len(machines)} machines, {len(values)} cells {name}: median {statistics.median(values):.2%}, at most {max(values):.2%}")


if __name__ == "__main__":
    main()
