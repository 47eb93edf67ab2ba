"""`longca calibrate`: makes a cluster file for `longca simulate` from measurements."""

from __future__ import annotations

import argparse
import sys

from longca.cli._flags import call, flag

HELP = "make a cluster file for `longca simulate` from measured records and transfers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder with journals of kernels, with transfers.jsonl, or with both")
    flag(parser, "--base", "NAME|FILE", "the cluster that the other constants come from (default h100-ib)")
    flag(parser, "--kernel", "NAME", "only records of this kernel (default: the fastest for each mask)")
    flag(parser, "--masks", "A,B", "only records of these masks, so that the others can judge the cluster (default: all)")
    flag(parser, "--device", "NAME", "the name of the device (default: that of the records)")
    flag(parser, "--out", "FILE.toml", "the file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    from longca.api.calibrate import calibrate

    made = call(calibrate, args)
    print("\n".join(map(str, made.parts())), file=sys.stderr)
    if args.out:
        print(f"longca simulate --cluster {args.out} uses it.", file=sys.stderr)
    else:
        print(made.toml, end="")
    return 0
