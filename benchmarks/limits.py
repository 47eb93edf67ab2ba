"""How near the fastest kernels come to what tiles allow, from the records of a journal; measures nothing.

    PYTHONPATH=src python benchmarks/limits.py results/h200/paper-kernel [--seqlen 32K]

The limit of a mask is the dense speed (the highest of any kernel on `full`, per cycle of the SMs, at the clock of the record) times the
mask's area over the area of the tiles that it touches: 128 keys by 128 rows forward, shared by the query heads of one KV head, and 128
keys by 64 rows backward.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NamedTuple

from longca.results.grouping import grouped
from longca.results.limits import DENSE, Limits
from longca.results.problem import Pass
from longca.results.reading import Results, read_some
from longca.results.record import Record
from longca.text import format_size, parse_size


class Standing(NamedTuple):
    """The fastest kernel of one mask, length and pass, and the speed that tiles would allow."""

    best: Record
    limit: float

    @property
    def share(self) -> float:
        return self.best.speed / self.limit


def standings(results: Results) -> Iterable[Standing]:
    """The fastest kernel on every static mask, length and pass of one device, beside the limit."""
    limits = Limits(results)
    known = [Standing(record, limit) for record in results.records if (limit := limits.of(record)) is not None]
    for group in grouped(known, lambda one: (one.best.built.digest, one.best.problem.pass_, one.best.problem.operator)).values():
        yield max(group, key=lambda standing: standing.best.speed)


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
    found = list(standings(read_some(args.journals)))
    table = {
        (standing.best.problem.mask, standing.best.problem.pass_): standing for standing in found if standing.best.problem.seqlen == seqlen
    }
    if not table:
        lengths = ", ".join(format_size(length) for length in sorted({standing.best.problem.seqlen for standing in found}))
        parser.exit(2, f"no mask has a time at {args.seqlen}; there are times at {lengths or 'no length'}.\n")
    dense = {pass_: standing.limit for (mask, pass_), standing in table.items() if mask == DENSE}
    print(f"{format_size(seqlen)} tokens, TFLOP/s; dense speed", " / ".join(f"{dense[pass_]:.0f}" for pass_ in Pass if pass_ in dense))
    print("| mask | limit fwd | best | share | limit bwd | best | share |\n|---|---|---|---|---|---|---|")
    for mask in dict.fromkeys(mask for mask, _ in table):
        print(f"| {mask} {cell(table.get((mask, Pass.FWD)))}{cell(table.get((mask, Pass.BWD)))}|")


if __name__ == "__main__":
    main()
