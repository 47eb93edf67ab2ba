"""The tables of figures in README and docs, from the journals under results/.

    python tools/doc_tables.py            # writes them anew
    python tools/doc_tables.py --check    # exit code 1 where a file has others than its journal

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`. Figures are forward/backward in TFLOP/s at 32K tokens; `-` is what
a kernel cannot do.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from longca import masks
from longca.bench.summary import label
from longca.report.reading import read

ROOT = Path(__file__).parents[1]
SEQLEN = 32768
PASSES = ("fwd", "bwd")
SHORT = ("full", "causal", "sliding_window_causal", "causal_document", "share_question", "global_sliding_window", "block_causal_document")
NATIVE = ("fa3", "fa4:native", "fa4:varlen", "cudnn", "sdpa:cudnn", "sdpa:flash", "fa2:torch")  # kernels that know the mask itself
BLOCK_KERNELS = ("block_triton", "flex", "fa4:blocks", "cudnn_bsa", "vsa", "vsa_triton", "flashinfer")
BLOCKS = {"full": "dense", "uniform_block": "{}, ratio {:g}", "variable_block": "variable, {} on average, ratio {:g}"}
LIKE_OTHERS = (("variable_block", 128), ("variable_block", 512))  # blocks of 128 are uniform ones, and 512 lies between its neighbours
MARKED = re.compile(r"(<!-- table (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)

Speeds = Mapping[tuple[str, str], float]  # TFLOP/s by kernel and pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    stale = []
    check = parser.parse_args().check
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        before = file.read_text()
        after = MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[3]}", before)
        if before != after:
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(after)
    if stale:
        print(f"{'stale' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


def dense_in_short() -> str:
    rows = []
    for mask, (speeds, _) in _dense().items():
        if mask in SHORT:
            native = " / ".join(filter(None, (_best(speeds, NATIVE, which) for which in PASSES))) or "none"
            rows.append([mask, _both(speeds, "fa4:bands"), _both(speeds, _interval(speeds)), native, _both(speeds, "flex")])
    return _table(["mask", "fa4:bands", "cudnn_flex", "best native kernels, forward and backward", "flex"], rows)


def dense() -> str:
    kernels = ("fa4:native", "fa4:varlen", "fa4:bands", "cudnn_flex", "fa3", "cudnn", "flex")
    rows = []
    for mask, (speeds, density) in _dense().items():
        cells = [_both(speeds, _interval(speeds) if name == "cudnn_flex" else name) for name in kernels]
        rows.append([mask, f"{density:.3f}", *cells])
    return _table(["mask", "density", *kernels], rows)


def sparse() -> str:
    rows: dict[tuple[int, str, int, float], dict[tuple[str, str], float]] = {}
    for record in _measured("paper-sparse"):
        params = record["params"]
        size = params.get("b") or params.get("avg") or 0
        if (record["mask"], size) not in LIKE_OTHERS:
            row = rows.setdefault((record["heads_kv"], record["mask"], size, params.get("ratio", 1.0)), {})
            name = label(record)
            row["fa4:blocks" if name == "fa4:native" else name, record["pass"]] = record["tflops"]
    named = [
        [BLOCKS[mask].format(size, ratio), f"64:{heads_kv}", *(_both(speeds, name) for name in BLOCK_KERNELS)]
        for (heads_kv, mask, size, ratio), speeds in sorted(rows.items())
    ]
    return _table(["blocks", "heads", *("fa4" if name == "fa4:blocks" else name for name in BLOCK_KERNELS)], named)


def _measured(name: str) -> Iterable[dict[str, Any]]:
    found = read(ROOT / "results" / "h200" / name)
    return [one for one in found if one["status"] == "ok" and one["seqlen"] == SEQLEN and one.get("source") in (None, "random")]


def _dense() -> dict[str, tuple[Speeds, float]]:
    """Speeds and density of each mask, in the order in which `longca ls masks` has them."""
    found: dict[str, tuple[dict[tuple[str, str], float], float]] = {}
    for record in _measured("paper-kernel"):
        speeds, _ = found.setdefault(record["mask"], ({}, record["area"] / SEQLEN**2))
        speeds[label(record), record["pass"]] = record["tflops"]
    return {name: found[name] for name in masks.names() if name in found}


def _interval(speeds: Speeds) -> str:
    """The variant that is taken by default: the one that cuts a mask into its documents, where there are several."""
    return "cudnn_flex:documents" if ("cudnn_flex:documents", "fwd") in speeds else "cudnn_flex:rows"


def _best(speeds: Speeds, kernels: Iterable[str], which: str) -> str:
    there = [(speeds[name, which], name) for name in kernels if (name, which) in speeds]
    return "{1} {0:.0f}".format(*max(there)) if there else ""


def _both(speeds: Speeds, kernel: str) -> str:
    figures = [f"{speeds[kernel, which]:.0f}" if (kernel, which) in speeds else "-" for which in PASSES]
    return "-" if figures == ["-", "-"] else "/".join(figures)


def _table(columns: list[str], rows: list[list[str]]) -> str:
    head, *body = (f"| {' | '.join(row)} |" for row in [columns, *rows])
    return "\n".join([head, "|---" * len(columns) + "|", *body])


TABLES: Mapping[str, Callable[[], str]] = {"dense-in-short": dense_in_short, "dense": dense, "sparse": sparse}

if __name__ == "__main__":
    sys.exit(main())
