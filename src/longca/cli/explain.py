"""`longca explain`: which kernels `best` would run, and why."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_model, add_plugins, add_question, add_seed, call
from longca.cli._notes import note
from longca.cli._tables import show
from longca.errors import Unavailable

HELP = "show which kernels `best`, the default of longca.attention, would choose for a call, and why; exit code 2 if there is none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_call(parser)
    parser.add_argument("--deterministic", action="store_true", help="assume a call with a deterministic backward")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda, or words of a device's name, such as H200, if LongCA has records of it (default: this machine)",
    )
    add_json(parser)


def add_call(parser: argparse.ArgumentParser) -> None:
    """A call of `longca.attention`."""
    add_question(parser, required=True)
    parser.add_argument("--forward-only", dest="backward", action="store_false", help="assume a call without a backward")
    parser.add_argument("--softcap", type=float, metavar="C", help="capped scores")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks")
    add_model(parser)
    add_seed(parser, "the seed of the mask (default 0)")
    add_plugins(parser, "your masks or kernels")


def run(args: argparse.Namespace) -> int:
    from longca.api.explain import explain

    explanation = call(explain, args)
    for name in explanation.never:
        note(f"{name} sets no `preference`, so `best` never chooses it (docs/write-a-kernel.md).")
    show(explanation, args.json)
    return 0 if explanation.ok else Unavailable.exit_code
