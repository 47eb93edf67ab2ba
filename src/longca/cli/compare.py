"""`longca compare`: whether one journal is slower than another, for people and for CI; or how one kernel of a journal stands."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longca.cli._collector import collector_paused
from longca.cli._journal_notes import say_lacks
from longca.errors import BadInput
from longca.text import parse_list, plural

if TYPE_CHECKING:
    from longca.compare.journals import Comparison
    from longca.results.record import Record

HELP = "tell what became slower or faster between two journals; exit code 1 if something did get slower"
ALSO = ("slower", "unclear", "missing")
USUAL_THRESHOLD = "3%"
ONLY_FOR_TWO = ("json", "all", "force", "threshold", "fail_on")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="the folder to compare with")
    parser.add_argument("after", metavar="B", nargs="?", help="the folder that may be slower or faster")
    parser.add_argument("--kernel", metavar="NAME", help="in place of B: how this kernel of A stands against the best other, mask by mask")
    parser.add_argument("--threshold", metavar="PART", help=f"a smaller change does not matter (default {USUAL_THRESHOLD}%)")
    parser.add_argument("--fail-on", metavar="WHAT", help="exit code 1 for slower (always), and unclear or missing cells")
    parser.add_argument("--all", action="store_true", help="also list cells that are the same, or measured in neither")
    parser.add_argument("--json", action="store_true", help="everything, for programs")
    parser.add_argument("--md", action="store_true", help="tables in Markdown, as for a comment on a pull request")
    parser.add_argument("--force", action="store_true", help="compare different devices, threads, clock settings, power limits or clocks")


def run(args: argparse.Namespace) -> int:
    threshold, also = _threshold(args.threshold or USUAL_THRESHOLD), _fail_on(args.fail_on or "slower")
    if (args.after is None) == (args.kernel is None):
        raise BadInput("compare a folder A with a folder B; or give one folder and --kernel NAME, which is compared with all others in it.")
    if args.json and args.md:
        raise BadInput("--json and --md would be printed into one another; choose one.")
    if args.kernel is not None:
        return _show_standing(args)
    from longca.compare.journals import compare

    say_lacks([args.before, args.after])
    with collector_paused():
        comparison = compare(args.before, args.after, threshold, args.force)
        if args.json:
            _print_json(comparison)
        else:
            _show(comparison, args.all, args.md)
    return 1 if comparison.fails(also) else 0


def _show_standing(args: argparse.Namespace) -> int:
    """Shows one kernel against all others of one journal: there is no before and after, so nothing can fail."""
    from longca.compare.standing import tables
    from longca.results.reading import read

    for name in ONLY_FOR_TWO:
        if getattr(args, name):
            raise BadInput(f"--{name.replace('_', '-')} is for two folders; leave it out with --kernel.")
    say_lacks([args.before])
    results = read(args.before)
    known = sorted({record.kernel for record in results.records if record.method is None})
    if results.records and not known:
        advice = "`longca report` and `longca recommend --gpus` compare methods"
        raise BadInput(f"{args.before} has only records of many ranks, and --kernel compares kernels on one device; {advice}.")
    if args.kernel not in known:
        raise BadInput(f"{args.before} has no record of {args.kernel!r}; it has {', '.join(known) or 'none at all'}.")
    shown = tables(results, args.kernel)
    if not shown:
        raise BadInput(f"{args.before} has no cell that {args.kernel} and another kernel did; measure others beside it: --kernels all.")
    for table in shown:
        print(f"### {table.title}\n" if args.md else table.title)
        _table(table.columns, table.rows, args.md)
        print()
    return 0


def _print_json(comparison: Comparison) -> None:
    import msgspec

    print(msgspec.json.format(msgspec.json.encode(comparison.to_json()), indent=1).decode())


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> None:
    from longca.cli._tables import show_table
    from longca.results.tables import markdown_table

    if markdown:
        print(markdown_table(columns, rows))
    else:
        show_table(columns, rows)


def _show(comparison: Comparison, everything: bool, markdown: bool) -> None:
    from longca.compare.describe import change, describe_all, describe_cells, notes

    hidden = () if everything else ("SAME", "UNMEASURED")
    rows = [
        [cell.verdict.value, *name, _time(cell.before), _time(cell.after), *change(cell.ratio), cell.why]
        for cell, name in zip(comparison.cells, describe_cells(comparison.cells), strict=True)
        if cell.verdict not in hidden
    ]
    if rows:
        columns = ["verdict", "kernel", "mask", "length", "pass", "shape", "A", "B", "time", "interval", "why"]
        used = len(columns) if any(row[-1] for row in rows) else len(columns) - 1
        _table(columns[:used], [row[:used] for row in rows], markdown)
        print()
    for side, records in (("A", comparison.only_before), ("B", comparison.only_after)):
        for row in describe_all(records):
            print(f"only in {side}: {' '.join(row)}")
    for sentence in notes(comparison):
        print(sentence)
    counts = ", ".join(f"{count} {verdict}" for verdict, count in comparison.counts.items() if count)
    only = f"; {plural(len(comparison.only_before), 'cell')} only in A, {len(comparison.only_after)} only in B"
    print(counts + (only if comparison.only_before or comparison.only_after else ""))


def _time(record: Record) -> str:
    from longca.compare.verdicts import is_unsteady

    return f"{record.times.median:.4g} ms{' unsteady' if is_unsteady(record) else ''}" if record.ok else record.status.value


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
