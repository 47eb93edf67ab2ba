"""`longca simulate`: how long context-parallel methods take on a cluster, from their recorded programs and a model of the cluster."""

from __future__ import annotations

import argparse
import sys

from longca.cli._flags import add_json, add_split, call, flag, settings, switch, typed
from longca.cli._tables import print_lines, show_parts
from longca.errors import BadInput, Refused
from longca.text import parse_list, parse_number

HELP = "predict how long methods take on 8 to a thousand GPUs, from their recorded programs and a model of the cluster"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--cluster", "NAME|FILE", "a cluster of LongCA (default h100-ib), or your own TOML file")
    add_split(parser)
    settings(parser, "--constant", "constants", _constants, "change a constant, such as between.gb_s=100")
    switch(parser, "--best", "search all grids, windows and stages for the best, and say why it is and how sure that is (passes: fwd+bwd)")
    flag(parser, "--out", "DIR", "add records to the journal in DIR, for report and compare")
    add_json(parser, "print one JSON object per result, with --validate one for all")
    flag(parser, "--trace", "FILE", "write the timelines of ranks for Perfetto (ui.perfetto.dev); one method and pass")
    flag(parser, "--ranks", "A,B", "the ranks of --trace (default: the first 8)")
    what = "compare with published results of H100 or B200 clusters (cpu-gloo: with gloo records), and print the errors"
    switch(parser, "--validate", what)
    flag(parser, "--against", "DIR", "compare with measured records of the level cp, and print the errors")


def run(args: argparse.Namespace) -> int:
    from longca.api.simulate import SimulateRequest, run_simulation, validate_simulation

    _refuse_idle(args)
    if args.validate or args.against:
        validation = call(validate_simulation, args)
        if not args.json:
            show_parts(validation.parts())
        elif args.against:
            print_lines(validation.rows)
        else:
            print_lines([validation.to_json()])
        return 0
    simulated = run_simulation(call(SimulateRequest, args), lambda row: print_lines([row]) if args.json else None)
    if not args.json:
        show_parts(simulated.parts())
    if args.out:
        print(f"{simulated.written} simulated records are in {args.out}.", file=sys.stderr)
    return 0 if simulated.ok else Refused.exit_code


def _refuse_idle(args: argparse.Namespace) -> None:
    """Refuses flags that would do nothing beside the others."""
    if args.ranks and not args.trace:
        raise BadInput("--ranks are those of --trace; give it too.")
    if not (args.validate or args.against):
        return
    mode = "validate" if args.validate else "against"
    idle = [flag for name, flag in typed(args, add_arguments).items() if name not in (mode, "cluster", "constants", "json")]
    if idle:
        raise BadInput(f"{idle[0]} does nothing beside --{mode}, which takes --cluster, --constant, --json; leave it out.")


def _constants(entries: list[str]) -> dict[str, float]:
    """Returns settings whose names have dots."""
    settings = {}
    for entry in (part for text in entries for part in parse_list(text)):
        name, _, value = (part.strip() for part in entry.partition("="))
        if not (name and value):
            raise BadInput(f"{entry!r} gives no constant a value; write a constant such as between.gb_s=100.")
        settings[name] = float(parse_number(value))
    return settings
