"""benchmarks/counters.py with a stand-in for ncu, which prints what the real one's documentation says."""

import json
import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "counters.py"
JOURNAL = Path(__file__).parents[2] / "results" / "h200" / "paper-kernel"
NCU = f"""#!{sys.executable}
import json, sys
sys.path[:0] = [{str(SCRIPT.parent)!r}]
import counters
given = sys.argv[1:]
value = lambda flag: given[len(given) - 1 - given[::-1].index(flag) + 1]
cells = json.loads(value("--cells"))[:-1]  # the time is over before the last one
titles = ["ID", "Kernel Name", *counters.METRICS.values()]
def row(name, **values):
    return ["0", name, *[str(values.get(title, "n/a")) for title in counters.METRICS]]
rows = [titles, [""] * len(titles)]
for number, cell in enumerate(cells, 1):
    rows.append(row("spin_kernel(long)", ns=1))
    stalls = dict(stall_gmma=3, stall_barrier=1, latency=4)
    rows.append(row("attend(float*)", ns="2,000,000", tensor=61.25, cycles=1000, active_avg=900, active_max=990, waves=number, **stalls))
    rows.append(row("fill", ns=10))
quoted = [",".join('"' + text + '"' for text in row) for row in rows]
open(given[given.index("--log-file") + 1], "w").write("\\n".join(["==PROF== Connected", *quoted]))
open(value("--out"), "w").write("".join(json.dumps(cell) + "\\n" for cell in cells))
"""


def test_counters_are_assigned_to_their_cells_and_counted_once(tmp_path: Path) -> None:
    program, out = tmp_path / "ncu", tmp_path / "counters.jsonl"
    program.write_text(NCU)
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, str(SCRIPT), "--masks", "full,causal_document", "--journal", str(JOURNAL), "--out", str(out)]
    codes, texts = [], []
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        codes.append(done.returncode)
        texts.append(done.stdout)
    assert codes == [3, 3]  # the stand-in never reaches the last cell
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["mask"], row["pass"]) for row in rows] == [("full", "fwd"), ("causal_document", "fwd"), ("full", "bwd")]
    assert [row["kernels"][0]["waves"] for row in rows] == [1, 2, 3]
    assert all(len(row["kernels"]) == 1 for row in rows)  # `fill` takes under 2 % of the call
    first = texts[0].splitlines()[2]
    assert first.endswith("| `attend` | 2.000 | 61 |  |  |  |  |  |  |  | wgmma 75, barrier 25 | 1.0 | 0.90 | 1.10 |")
    assert texts[1] == texts[0]
