"""`longca plan`: computes what each context-parallel method sends, holds and computes per GPU; exact, without a GPU."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_split, call
from longca.cli._tables import print_lines, show_parts
from longca.errors import Refused

HELP = "show what each method sends, holds and computes per GPU, exactly and without a GPU"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_split(parser)
    parser.add_argument("--per-node", type=int, default=8, metavar="N", help="GPUs per node (default 8)")
    parser.add_argument("--all-grids", action="store_true", help="all grids of the methods that have several")
    add_json(parser, "print one JSON object per row instead of a table")


def run(args: argparse.Namespace) -> int:
    from longca.api.plan import PlanRequest, run_plan

    plan = run_plan(call(PlanRequest, args), lambda row: print_lines([row]) if args.json else None)
    if not args.json:
        show_parts(plan.parts())
    return 0 if plan.ok else Refused.exit_code
