"""How often `longca compare` calls a cell faster or slower that did not change: one grid measured twice, by separate processes.

python benchmarks/compare_false_alarms.py             # the suite quick on a CPU; 40 cells of fa4 and flex on a GPU
python benchmarks/compare_false_alarms.py --out DIR -- quick --budget 1     # any other run: what follows -- is given to `longca run`
python benchmarks/compare_false_alarms.py --compared A B                    # two journals that are there already

Exit code 1 if more than 1 % of the cells are called FASTER or SLOWER, or a run fails; 3 if most are UNCLEAR or none was measured, so that
few alarms prove nothing.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from longca import devices
from longca.compare.journals import Comparison, compare
from longca.compare.verdicts import Verdict, decide
from longca.compare.words import change, describe_cells

MOST_ALARMS = 0.01
ENOUGH_DECIDED = 0.5
GPU = (
    *("--kernels", "fa4,flex", "--masks", "full,causal,sliding_window,causal_document,share_question", "--seqlens", "8K,32K"),
    *("--heads", "64:8", "--head-dim", "128", "--dtype", "bf16", "--passes", "fwd,bwd", "--budget", "0.5"),
)
SOURCE = Path(__file__).parents[1] / "src"


def measure(out: Path, run: list[str]) -> None:
    command = [sys.executable, "-m", "longca", "run", *run, "--out", str(out)]
    print(f"$ longca run {' '.join(command[4:])}", flush=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"longca run ended with exit code {done.returncode}: {done.stderr.strip()[-500:]}")


def report(comparison: Comparison) -> int:
    measured = [cell for cell in comparison.cells if cell.ratio is not None]
    alarms = [cell for cell in measured if cell.verdict in (Verdict.FASTER, Verdict.SLOWER)]
    decided = [cell for cell in measured if cell.verdict is not Verdict.UNCLEAR]
    print(", ".join(f"{count} {verdict}" for verdict, count in comparison.counts.items() if count))
    for sentence in comparison.busy:
        print(sentence)
    for cell, name in zip(alarms, describe_cells(alarms), strict=True):
        print(f"  {cell.verdict} {' '.join(name)}: {change(cell.ratio)[0]}")
        for record in (cell.before, cell.after):
            print(f"    {' '.join(f'{ms:.4g}' for ms in record.times.samples[:20])} ms at {record.clock_mhz} MHz")
    # the verdicts of the intervals alone, without a look at noise
    bare = Counter(decide(cell.ratio, comparison.threshold) for cell in measured if cell.ratio is not None)
    print(f"by their intervals alone, noise or not: {', '.join(f'{count} {name}' for name, count in bare.most_common())}")
    share = len(alarms) / len(measured) if measured else 0.0
    print(f"called FASTER or SLOWER: {len(alarms)} of {len(measured)} cells ({share:.1%}); at most {MOST_ALARMS:.0%} may be")
    if share > MOST_ALARMS:
        return 1
    if not measured or len(decided) < ENOUGH_DECIDED * len(measured):
        print(f"only {len(decided)} of {len(measured)} cells were decided, so this proves little; measure on a quiet machine.")
        return 3
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="DIR", help="keep the two journals here; what is here already is not measured again")
    parser.add_argument("--compared", nargs=2, metavar=("A", "B"), help="measure nothing: compare these journals")
    parser.add_argument("--threshold", type=float, default=0.03)
    parser.add_argument("run", nargs="*", help="arguments of `longca run` (default: the suite quick, or on a GPU 40 cells)")
    args = parser.parse_args()
    if args.compared:
        return report(compare(args.compared[0], args.compared[1], args.threshold))
    run = args.run or (["quick"] if devices.kind() == "cpu" else list(GPU))
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(args.out or scratch) / side for side in ("a", "b")]
        for folder in folders:
            measure(folder, run)  # a journal that is complete is left as it is
        return report(compare(folders[0], folders[1], args.threshold))


if __name__ == "__main__":
    sys.exit(main())
