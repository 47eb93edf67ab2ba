"""`longca plan`: computes what each context-parallel method sends, holds and computes per GPU; exact, without a GPU."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_split
from longca.errors import Refused

HELP = "show what each method sends, holds and computes per GPU, exactly and without a GPU"
JSON_LINES, FAILED = True, Refused.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_split(parser)
    parser.add_argument("--per-node", type=int, metavar="N", help="GPUs per node (default 8)")
    parser.add_argument("--all-grids", action="store_true", help="all grids of the methods that have several")
    add_json(parser, "print one JSON object per row instead of a table")
