"""`longca compare`: whether one journal is slower than another, for people and for CI; or how one kernel of a journal stands."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from longca.cli._torn import say_torn
from longca.errors import BadInput
from longca.report import PRACTICAL
from longca.text import parse_list, plural

if TYPE_CHECKING:
    from longca.report.compare import Comparison

HELP = "tell what became slower or faster between two journals; exit code 1 if something did get slower"
ALSO = ("slower", "unclear", "missing")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="the folder to compare with")
    parser.add_argument("after", metavar="B", nargs="?", help="the folder that may be slower or faster")
    parser.add_argument("--kernel", metavar="NAME", help="in place of B: how this kernel of A stands against the best other, mask by mask")
    parser.add_argument("--threshold", metavar="PART", help=f"a change below this does not matter (default {PRACTICAL:.0%}%)")
    parser.add_argument("--fail-on", metavar="WHAT", help="exit code 1 for slower (always), and unclear or missing cells")
    parser.add_argument("--all", action="store_true", help="list cells that are the same, or measured in neither, too")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--md", action="store_true", help="tables in Markdown, as for a comment on a pull request")
    parser.add_argument(
        "--force",
        action="store_true",
        help="compare different devices, threads, clock settings, power limits or clocks, or an older schema",
    )


def run(args: argparse.Namespace) -> int:
    threshold, also = _threshold(args.threshold or f"{PRACTICAL}"), _fail_on(args.fail_on or "slower")
    if (args.after is None) == (args.kernel is None):
        raise BadInput("compare a folder A with a folder B; or give one folder and --kernel NAME, which is compared with all others in it.")
    if args.json and args.md:
        raise BadInput("--json and --md would be printed into one another; choose one.")
    if args.kernel is not None:
        return _stand(args)
    from longca.report import compare

    say_torn([args.before, args.after])
    compared = compare.compare(args.before, args.after, threshold, args.force)
    if args.json:
        print(compare.as_json(compared, threshold))
    else:
        _show(compared, args.all, args.md)
    return 1 if compared.fails(also) else 0


def _stand(args: argparse.Namespace) -> int:
    """One kernel against all others of one journal: there is no before and after, so nothing can fail."""
    from longca.bench.standing import standing
    from longca.report.reading import read, read_environments

    without_meaning = [name for name in ("json", "all", "force", "threshold", "fail_on") if getattr(args, name)]
    if without_meaning:
        raise BadInput(f"--{without_meaning[0].replace('_', '-')} is for two folders; leave it out with --kernel.")
    say_torn([args.before])
    records = read(args.before)
    known = sorted({record["kernel"] for record in records})
    if args.kernel not in known:
        raise BadInput(f"{args.before} has no record of {args.kernel!r}; it has {', '.join(known) or 'none at all'}.")
    tables = standing(records, args.kernel, read_environments(args.before))
    if not tables:
        raise BadInput(f"{args.before} has no cell that {args.kernel} and another kernel did; measure others beside it: --kernels all.")
    for table in tables:
        print(f"### {table.title}\n" if args.md else table.title)
        _table(table.columns, table.rows, args.md)
        print()
    return 0


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> None:
    from longca.cli._tables import show_table
    from longca.report.markdown import escaped

    if not markdown:
        show_table(columns, rows)
        return
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(map(escaped, row))} |")


def _show(compared: Comparison, everything: bool, markdown: bool) -> None:
    from longca.report.compare import advice, change, describe_all, why

    hidden = () if everything else ("SAME", "UNMEASURED")
    names = describe_all([cell.before for cell in compared.cells])
    rows = [
        [cell.verdict, *name, _time(cell.before), _time(cell.after), *change(cell.ratio), why(cell)]
        for cell, name in zip(compared.cells, names, strict=True)
        if cell.verdict not in hidden
    ]
    if rows:
        columns = ["verdict", "kernel", "mask", "length", "pass", "shape", "A", "B", "time", "interval", "why"]
        used = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
        _table(columns[:used], [row[:used] for row in rows], markdown)
        print()
    for side, records in (("A", compared.only_before), ("B", compared.only_after)):
        for row in describe_all(records):
            print(f"only in {side}: {' '.join(row)}")
    for difference in compared.differences:
        print(f"compared all the same: A and B differ in {difference}")
    for sentence in compared.busy or advice(compared.cells):
        print(sentence)
    counts = ", ".join(f"{count} {name}" for name, count in compared.counts.items() if count)
    only = f"; {plural(len(compared.only_before), 'cell')} only in A, {len(compared.only_after)} only in B"
    print(counts + (only if compared.only_before or compared.only_after else ""))


def _time(record: dict[str, Any]) -> str:
    from longca.report.compare import unsteady

    if record["status"] != "ok":
        return str(record["status"])
    return f"{record['ms']['median']:.4g} ms{' unsteady' if unsteady(record) else ''}"


def _threshold(text: str) -> float:
    digits, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise BadInput(f"--threshold {text!r} is not understood; write a share of the time such as 3% or 0.03.")
    return value


def _fail_on(text: str) -> list[str]:
    wanted = parse_list(text)
    wrong = [name for name in wanted if name not in ALSO]
    if wrong or not wanted:
        raise BadInput(f"--fail-on {text!r} is not understood; write {', '.join(ALSO)}, or several with commas.")
    return wanted
