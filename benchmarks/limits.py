"""How near the fastest kernels come to what tiles allow, from the records of a journal; measures nothing.

    PYTHONPATH=src python benchmarks/limits.py results/h200/paper-kernel [--seqlen 32K]

The limit of a mask is the dense speed (the highest of any kernel on `full`) times the mask's area over the area of the tiles that it
touches: 128 keys by 128 rows forward, shared by the query heads of one KV head, and 128 keys by 64 rows backward.
"""

from __future__ import annotations

import argparse

from longca.results.limits import DENSE, Standing, standings
from longca.results.reading import read_some
from longca.results.record import Pass
from longca.text import format_size, parse_size


def cell(standing: Standing | None) -> str:
    if standing is None:
        return "| | | "
    return f"| {standing.limit:.0f} | {standing.best.speed:.0f} {standing.best.label} | {standing.share:.2f} "


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", nargs="+")
    parser.add_argument("--seqlen", default="32K", help="32K unless given")
    args = parser.parse_args()
    seqlen = parse_size(args.seqlen)
    found = standings(read_some(args.journals))
    table = {(standing.mask, standing.pass_): standing for standing in found if standing.seqlen == seqlen}
    if not table:
        lengths = ", ".join(format_size(length) for length in sorted({standing.seqlen for standing in found}))
        parser.exit(2, f"no mask has a time at {args.seqlen}; there are times at {lengths or 'no length'}.\n")
    dense = {standing.pass_: standing.limit for standing in table.values() if standing.mask == DENSE}
    print(f"{format_size(seqlen)} tokens, TFLOP/s; dense speed", " / ".join(f"{dense[pass_]:.0f}" for pass_ in Pass if pass_ in dense))
    print("| mask | limit fwd | best | share | limit bwd | best | share |\n|---|---|---|---|---|---|---|")
    for mask in dict.fromkeys(mask for mask, _ in table):
        print(f"| {mask} {cell(table.get((mask, Pass.FWD)))}{cell(table.get((mask, Pass.BWD)))}|")


if __name__ == "__main__":
    main()
