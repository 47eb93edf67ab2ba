"""`longca calibrate`: makes a cluster file for `longca simulate` from measurements."""

from __future__ import annotations

import argparse
import sys

from longca.cli._flags import call

HELP = "make a cluster file for `longca simulate` from measured records and transfers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder with journals of kernels, with transfers.jsonl, or with both")
    parser.add_argument("--base", metavar="NAME|FILE", help="the cluster that the other constants come from (default h100-ib)")
    parser.add_argument("--kernel", metavar="NAME", help="only records of this kernel (default: the fastest for each mask)")
    parser.add_argument("--device", metavar="NAME", help="the name of the device (default: that of the records)")
    parser.add_argument("--out", metavar="FILE.toml", help="the file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    from longca.api.calibrate import calibrate

    made = call(calibrate, args)
    print("\n".join(map(str, made.parts())), file=sys.stderr)
    if args.out:
        print(f"longca simulate --cluster {args.out} uses it.", file=sys.stderr)
    else:
        print(made.toml, end="")
    return 0
