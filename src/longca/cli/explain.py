"""`longca explain`: which kernels `best` would run, and why."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_model, add_plugins, add_question, add_seed, call, flag, switch
from longca.cli._notes import note
from longca.cli._tables import show
from longca.errors import Unavailable

HELP = "show which kernels `best`, the default of longca.attention, would choose for a call, and why; exit code 2 if there is none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_call(parser)
    switch(parser, "--deterministic", "assume a call with a deterministic backward")
    flag(parser, "--device", "NAME", "cpu, cuda, or words of the name of a device with records, such as H200 (default: this machine)")
    add_json(parser)


def add_call(parser: argparse.ArgumentParser) -> None:
    """A call of `longca.attention`."""
    add_question(parser, required=True)
    parser.add_argument("--forward-only", dest="backward", action="store_false", help="assume a call without a backward")
    flag(parser, "--softcap", "C", "capped scores", type=float)
    switch(parser, "--sinks", "attention sinks")
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
