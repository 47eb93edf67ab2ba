"""`longca merge`: join the journals of shards and machines."""

from __future__ import annotations

import argparse

from longca.cli._flags import switch
from longca.cli._notes import say_lacks

HELP = "join the journals of several runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="the folder to write, or an existing journal to add to (a packed one with --pack)")
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders that `longca run` wrote; a later one replaces equal cells")
    switch(parser, "--pack", "compress the result; no run can add to it then")


def run(args: argparse.Namespace) -> int:
    from longca.api.journals import merge
    from longca.results.words import merged

    say_lacks(args.folders)
    done = merge(args.out, *args.folders, pack=args.pack)
    print(merged(done, args.out, args.pack))
    return 0
