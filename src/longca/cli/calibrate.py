"""`longca calibrate`: makes a cluster file for `longca simulate` from measurements."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "make a cluster file for `longca simulate` from measured records and transfers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", help="a folder with journals of kernels, with transfers.jsonl, or with both")
    parser.add_argument(
        "--base", default="h100-ib", metavar="NAME|FILE", help="the cluster that the other constants come from (default h100-ib)"
    )
    parser.add_argument("--kernel", metavar="NAME", help="only records of this kernel (default: the fastest for each mask)")
    parser.add_argument("--device", metavar="NAME", help="the name of the device (default: that of --base)")
    parser.add_argument("--out", metavar="FILE.toml", help="the file to write (default: print it)")


def run(args: argparse.Namespace) -> int:
    from msgspec.structs import replace

    from longca.api.files import write_text
    from longca.simulate import cluster as clusters
    from longca.simulate.calibrate import calibrate

    name, base = clusters.find(args.base)
    cluster, fits = calibrate(Path(args.folder), base, args.kernel or "")
    made = f"made from {args.folder}; what was not measured there is from {name}"
    text = clusters.to_toml(replace(cluster, source=made, device=args.device or base.device, error=0.0))
    for fit in fits:
        print(f"{fit.name} = {fit.value:g} from {fit.measurements} measurements, median error {fit.error:.1%}", file=sys.stderr)
    if not args.out:
        print(text, end="")
        return 0
    write_text(args.out, text)
    print(f"longca simulate --cluster {args.out} uses it.", file=sys.stderr)
    return 0
