"""`longca plan`: computes what each context-parallel method sends, holds and computes per GPU; exact, without a GPU."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_split, flag, switch
from longca.errors import Refused

HELP = "show what each method sends, holds and computes per GPU, exactly and without a GPU"
JSON_LINES, FAILED = True, Refused.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_split(parser)
    flag(parser, "--per-node", "N", "GPUs per node (default 8)", type=int)
    switch(parser, "--all-grids", "all grids of the methods that have several")
    add_json(parser, "print one JSON object per row instead of a table")
