"""`longca compare`: compares two journals, for people and for CI; or one kernel of a journal with the others; or many journals."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from longca.cli._flags import add_json, flag, switch, typed
from longca.cli._notes import say_lacks
from longca.cli._tables import print_json, print_text, show_parts
from longca.errors import BadInput
from longca.text import parse_list

if TYPE_CHECKING:
    from longca.compare.history import History
    from longca.compare.journals import Comparison

HELP = "show what became slower or faster between two journals; exit code 1 if something became slower"
EXAMPLES = (
    "longca compare out/before out/after",
    "longca compare out/before out/after --threshold 5% --fail-on unclear,missing --md",
    "longca compare out/mine --kernel my_kernel",
    "longca compare --history bench/history",
)
ALSO = ("slower", "unclear", "missing")
USUAL_THRESHOLD = "3%"
ONLY_FOR_TWO = ("json", "all", "force", "threshold", "fail_on")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", nargs="?", help="the journal before the change")
    parser.add_argument("after", metavar="B", nargs="?", help="the journal after the change")
    flag(parser, "--kernel", "NAME", "instead of B: compare this kernel of A with the best other kernel, for each mask")
    what = "instead of A and B: many journals, oldest first, or a folder of them; shows each cell over time, with steps"
    flag(parser, "--history", "DIR", what, nargs="+")
    flag(parser, "--threshold", "PART", f"ignore smaller changes (default {USUAL_THRESHOLD}%)")
    flag(parser, "--fail-on", "WHAT", "exit code 1 also for unclear or missing cells; slower is always included")
    switch(parser, "--all", "also list cells that are the same or unmeasured")
    add_json(parser, "print everything as JSON")
    switch(parser, "--md", "print Markdown, for a comment on a pull request")
    switch(parser, "--force", "compare even if devices, threads, clock settings, power limits or clocks differ")


def run(args: argparse.Namespace) -> int:
    from longca.api.compare import compare
    from longca.compare.standing import KernelStanding

    if args.json and args.md:
        raise BadInput("--json and --md cannot both be printed; choose one.")
    if args.history is not None:
        return _show_history(args)
    if args.before is None:
        raise BadInput("give two folders, A and B; or one folder and --kernel NAME; or --history DIR... for many.")
    also = _fail_on(args.fail_on or "slower")
    two = [flag for name, flag in typed(args, add_arguments).items() if name in ONLY_FOR_TWO]
    if two and args.kernel is not None and args.after is None:
        raise BadInput(f"{two[0]} is for two folders; leave it out with --kernel.")
    say_lacks([folder for folder in (args.before, args.after) if folder is not None])
    compared = compare(args.before, args.after, kernel=args.kernel, threshold=args.threshold or USUAL_THRESHOLD, force=args.force)
    if isinstance(compared, KernelStanding):
        show_parts(compared.parts(), args.md)
        return 0
    _show(compared, args)
    return 1 if compared.fails(also) else 0


def _show_history(args: argparse.Namespace) -> int:
    """Shows many journals. An old slowdown is not today's failure, so the exit code is 1 only with --fail-on."""
    from longca.api.compare import history

    if args.before is not None or args.kernel is not None:
        raise BadInput("--history takes all its folders itself; leave out A, B and --kernel.")
    also = _fail_on(args.fail_on) if args.fail_on else []
    if wrong := [name for name in also if name != "slower"]:
        raise BadInput(f"--fail-on {wrong[0]} is for two folders; with --history it takes slower.")
    say_lacks(args.history)
    found = history(*args.history, threshold=args.threshold or USUAL_THRESHOLD, force=args.force)
    _show(found, args)
    return 0 if found.ok or not also else 1


def _show(found: Comparison | History, args: argparse.Namespace) -> None:
    if args.json:
        print_json(found.to_json())
    elif args.md:
        print_text(found.markdown(args.all))
    else:
        show_parts(found.parts(args.all))


def _fail_on(text: str) -> list[str]:
    wanted = parse_list(text)
    wrong = [name for name in wanted if name not in ALSO]
    if wrong or not wanted:
        raise BadInput(f"--fail-on {text!r} is not understood; write {', '.join(ALSO)}, or several with commas.")
    return wanted
