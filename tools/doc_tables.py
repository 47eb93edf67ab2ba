"""The tables of figures in the README and docs, from the journals under results/, and what `longca recommend` answers from them.

    python tools/doc_tables.py            # writes them anew
    python tools/doc_tables.py --check    # exit code 1 where a file has others than its journal

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`. Figures are forward/backward in TFLOP/s at 32K tokens; `-` is what
a kernel cannot do, and `~` stands behind what is noisy or has fewer than five samples. What a command prints stands between the same
marks.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from device_tables import TABLES as DEVICE
from measured_tables import TABLES as MEASURED
from measured_tables import at_least, figure, joined, json_rows, marked
from numerics_tables import TABLES as NUMERICS
from ranks_tables import TABLES as RANKS
from shape_tables import TABLES as SHAPES
from shape_tables import rankings_of_all_seeds
from shared_tables import TABLES as SHARED
from sparse_cp_tables import TABLES as SPARSE_CP

from longca import masks
from longca.cli import main as longca_main
from longca.results.problem import Pass
from longca.results.reading import read
from longca.results.record import Record, Status
from longca.text import format_size

ROOT = Path(__file__).parents[1]
SEQLEN, SHORTEST = 32768, 8192
GOAL = 0.98  # of the fastest kernel's speed, for `best`
RECOMMEND = "longca recommend --mask causal_document --seqlen 32K"
PASSES = (Pass.FWD, Pass.BWD)
SHORT = ("full", "causal", "sliding_window_causal", "causal_document", "share_question", "global_sliding_window", "block_causal_document")
NATIVE = ("fa3", "fa4:native", "fa4:varlen", "cudnn", "sdpa:cudnn", "sdpa:flash", "fa2:torch")  # kernels that know the mask itself
ANY_MASK = ("fa4:bands", "cudnn_flex:rows", "cudnn_flex:documents")
BLOCK_KERNELS = ("block_triton", "flex", "fa4:blocks", "cudnn_bsa", "vsa", "vsa_triton", "flashinfer")
BLOCKS = {"uniform_block": "{}", "variable_block": "variable, {}"}
LEAST = 0.2  # of the measured ratios of kept blocks
LIKE_OTHERS = (("variable_block", 128), ("variable_block", 512))  # blocks of 128 are uniform ones, and 512 lies between its neighbours
MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Speeds = Mapping[tuple[str, str], Record]  # by kernel and pass
Figures = Mapping[tuple[str, str], tuple[float, str]]  # the speed, and how it is shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = {file: file.read_text() for file in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))}
    _refuse_marks(files)
    stale = []
    for file, before in files.items():
        after = MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", before)
        if before != after:
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(after)
    if stale:
        print(f"{'stale' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


def _refuse_marks(files: Mapping[Path, str]) -> None:
    """A table that nothing marks as one would stay as it is for ever."""
    text = "".join(files.values())
    found = sorted(name for _, name, _ in MARKED.findall(text))
    marks = [text.count("<!-- table"), text.count("end of table -->")]
    if found != sorted(TABLES) or marks != [len(TABLES)] * 2:
        sys.exit(f"README and docs must hold each of the tables {', '.join(TABLES)} once; marked are {', '.join(found) or 'none'}.")


def dense_in_short() -> str:
    """At 32K: masks with documents over all measured seeds (all work over all time), since one seed is not typical; others once."""
    rows = []
    for mask, (speeds, _) in _dense().items():
        if mask in SHORT:
            figures = _over_seeds(mask) or {key: (record.speed, figure(record)) for key, record in speeds.items()}
            kernels = {kernel for kernel, _ in figures}
            fastest, native = (" / ".join(filter(None, (_best(figures, own, which) for which in PASSES))) for own in (kernels, NATIVE))
            rows.append([mask, fastest, native or "none"])
    return f"{_table(['mask', 'fastest forward / backward', 'fastest with native support'], rows)}\n\n{_against()}"


def _over_seeds(mask: str) -> Figures:
    """The speed of each kernel over all seeds; empty for a mask without documents."""
    return {
        (own.line, pass_): (own.tflops, marked(f"{own.tflops:.0f}", own.noisy, own.samples))
        for (name, pass_, seqlen), ranking in rankings_of_all_seeds()
        if (name, seqlen) == (mask, SEQLEN)
        for own in ranking.standings
    }


def _against() -> str:
    """How the better kernel for any mask compares with those for one mask, and with flex."""
    least = at_least(_least_over(NATIVE, shortest=SHORTEST))
    better = f"From {format_size(SHORTEST)} tokens on, the better of `fa4:bands` and `cudnn_flex` is at least {least} times as fast"
    forward, backward = (at_least(_least_over(("flex",), pass_=pass_)) for pass_ in PASSES)
    return (
        f"{better} as the best kernel with native support for the mask.\n"
        f"On every mask and at every length it is at least {forward} times as fast as flex forward, and {backward} times backward."
    )


def _least_over(others: Iterable[str], pass_: Pass | None = None, shortest: int = 0) -> float:
    """The least that the best kernel for any mask has of the best of the others' speed, over all masks and lengths of the paper's grid."""
    cells: dict[tuple[object, ...], dict[str, float]] = {}
    for record in read(ROOT / "results/h200/paper-kernel").records:
        if record.ok and record.problem.seqlen >= shortest and pass_ in (None, record.problem.pass_):
            cells.setdefault((record.problem.mask, record.problem.seqlen, record.problem.pass_), {})[record.label] = record.speed
    both = ([[own[name] for name in kernels if name in own] for kernels in (ANY_MASK, others)] for own in cells.values())
    return min(max(mine) / max(theirs) for mine, theirs in both if theirs)


def best() -> str:
    """How the kernel `best` compares with all others, in turns; without rows of an earlier rule, which have no `by_records`."""
    rows = json_rows("h200/best_of_all.jsonl")
    now = [row for row in rows if "by_records" in row]
    alone = [row["fastest_ms"] / row["all_ms"].get(row["by_records"], math.inf) for row in now]
    return f"{_reached([row['ratio'] for row in now])}\nBy records alone: {_reached(alone).lower()}"


def _reached(ratios: Sequence[float]) -> str:
    reached = sum(ratio >= GOAL for ratio in ratios)
    return f"{reached} of {len(ratios)} rows reach {GOAL} times the speed of the fastest kernel; the smallest ratio is {min(ratios):.3f}."


def sparse() -> str:
    """Random patterns of the least ratio, by the number of KV heads."""
    rows: dict[tuple[int, str, int], dict[tuple[str, str], Record]] = {}
    for record in _measured("paper-sparse"):
        size = int(record.built.params.get("b") or record.built.params.get("avg") or 0)
        block = record.problem.mask, size
        if block[0] in BLOCKS and block not in LIKE_OTHERS and record.built.params.get("ratio", LEAST) == LEAST:
            _add(rows.setdefault((record.problem.heads_kv, *block), {}), record.label, record)
    named = [
        [BLOCKS[mask].format(size), f"64:{heads_kv}", *(_both(speeds, name) for name in BLOCK_KERNELS)]
        for (heads_kv, mask, size), speeds in sorted(rows.items())
    ]
    return _table(["blocks", "heads", *("fa4" if name == "fa4:blocks" else name for name in BLOCK_KERNELS)], named)


def answer() -> str:
    """What `longca recommend` prints, up to the first remark below its table."""
    printed = _printed(RECOMMEND)
    below = printed.index("", printed.index("") + 1)  # the blank line below the table
    return "\n".join(["```", f"$ {RECOMMEND}", *printed[: below + 2], "[...]", "```"])


def _printed(command: str) -> list[str]:
    """The lines that a command prints, without spaces at their ends."""
    with redirect_stdout(StringIO()) as printed:
        if longca_main(command.split()[1:]):
            sys.exit(f"`{command}` failed, so its output cannot be part of docs.")
    return [line.rstrip() for line in printed.getvalue().splitlines()]


def _measured(name: str, source: str = "random") -> Iterable[Record]:
    """What has a time; of block patterns, those of this source."""
    journal = read(ROOT / "results" / "h200" / name).records
    records = [record for record in journal if record.problem.seqlen == SEQLEN and record.problem.source == source]
    fine = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED)
    failed = {(record.status.value, record.label) for record in records if record.status not in fine}
    if failed:
        sys.exit(f"{name} has cells that are {failed}, which these tables have no word for.")
    return [record for record in records if record.ok]


def _add(speeds: dict[tuple[str, str], Record], kernel: str, record: Record) -> None:
    if (kernel, record.problem.pass_) in speeds:
        cell = f"{kernel} on {record.problem.mask}, {record.problem.pass_}"
        sys.exit(f"there are two records of {cell}: a table has room for one seed and one shape.")
    speeds[kernel, record.problem.pass_] = record


def _dense() -> dict[str, tuple[Speeds, float]]:
    """Records and density of each mask, in the order in which `longca ls masks` has them."""
    found: dict[str, tuple[dict[tuple[str, str], Record], float]] = {}
    for record in _measured("paper-kernel"):
        speeds, _ = found.setdefault(record.problem.mask, ({}, (record.built.area or 0) / SEQLEN**2))
        _add(speeds, record.label, record)
    return {name: found[name] for name in masks.names() if name in found}


def _best(figures: Figures, kernels: Iterable[str], which: Pass) -> str:
    there = [name for name in kernels if (name, which) in figures]
    fastest = max(there, key=lambda name: figures[name, which][0], default=None)
    return f"{fastest} {figures[fastest, which][1]}" if fastest else ""


def _both(speeds: Speeds, kernel: str) -> str:
    return joined([figure(speeds[kernel, which]) if (kernel, which) in speeds else "-" for which in PASSES])


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in [columns, *rows])
    return "\n".join([head, "|---" * len(columns) + "|", *body])


TABLES: Mapping[str, Callable[[], str]] = (
    {
        "dense-in-short": dense_in_short,
        "best": best,
        "sparse": sparse,
        "recommend": answer,
    }
    | DEVICE
    | MEASURED
    | SHAPES
    | NUMERICS
    | SPARSE_CP
    | RANKS
    | SHARED
)

if __name__ == "__main__":
    sys.exit(main())
