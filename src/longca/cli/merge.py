"""`longca merge`: join the journals of shards and machines."""

from __future__ import annotations

import argparse

from longca.cli._notes import say_lacks

HELP = "join the journals of several runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "out", metavar="OUT", help="the folder to write; cells are added to an existing journal, with --pack also to a packed one"
    )
    parser.add_argument(
        "folders", nargs="+", metavar="DIR", help="folders that `longca run` wrote; a later folder replaces equal cells of an earlier one"
    )
    parser.add_argument("--pack", action="store_true", help="compress the result; no run can add to it then")


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import merge
    from longca.results.words import merged

    say_lacks(args.folders)
    done = merge(args.out, *args.folders, pack=args.pack)
    print(merged(done, args.out, args.pack))
    return 0
