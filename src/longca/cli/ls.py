"""`longca ls`: lists kernels, masks, methods, suites, models, distributions and packings."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_plugins, flag, switch
from longca.cli._tables import show

HELP = "list kernels, masks, context-parallel methods, suites, models, distributions or packings"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", help="one of kernels, masks, cp, suites, models, distributions, packings")
    parser.add_argument("names", nargs="*", metavar="NAME", help="entries to show; a kernel is shown with all details")
    switch(parser, "--details", "for kernels: all details of each")
    flag(parser, "--png", "FILE", "for distributions: draw them into a PNG file")
    flag(parser, "--lengths", "FILE", "for distributions: list document lengths of your own, too (a JSON list, or numbers)")
    add_json(parser)
    add_plugins(parser, "kernels, masks or methods to list too")


def run(args: argparse.Namespace) -> int:
    from longca.api.ls import ls

    show(ls(args.what, *args.names, details=args.details, plugins=args.plugins, png=args.png, lengths=args.lengths), args.json)
    return 0
