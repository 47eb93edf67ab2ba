"""`longca explain`: which kernels `best` would run, and why."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_documents, add_json, add_model, add_plugins, add_seed, add_set, call
from longca.cli._notes import note
from longca.cli._tables import print_json, show_parts
from longca.errors import Unavailable

HELP = "show which kernels `best`, the default of longca.attention, would choose for a call, and why; exit code 2 if there is none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_call(parser)
    add_model(parser)
    parser.add_argument("--deterministic", action="store_true", help="assume a call with a deterministic backward")
    add_set(parser, "a parameter of the mask")
    add_documents(parser)
    add_seed(parser, "the seed of the mask (default 0)")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda, or words of a device's name, such as H200, if LongCA has records of it (default: this machine)",
    )
    add_plugins(parser, "your masks or kernels")
    add_json(parser)


def add_call(parser: argparse.ArgumentParser) -> None:
    """Adds the mask and the shape of a call."""
    parser.add_argument("--mask", required=True, help="a name from `longca ls masks`, a file, or an expression such as 'causal & full'")
    parser.add_argument("--seqlen", required=True, metavar="S", help="tokens, such as 128K")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size; 192/128 if V has its own (default 128)")
    parser.add_argument("--dtype", help="bf16, fp16, fp32 or fp64 (default bf16, on a CPU fp32)")
    parser.add_argument("--forward-only", dest="backward", action="store_false", help="assume a call without a backward")
    parser.add_argument("--softcap", type=float, metavar="C", help="capped scores")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks")


def run(args: argparse.Namespace) -> int:
    from longca.api.explain import explain

    explanation = call(explain, args)
    for name in explanation.never:
        note(f"{name} sets no `preference`, so `best` never chooses it (docs/write-a-kernel.md).")
    if args.json:
        print_json(explanation.to_json())
    else:
        show_parts(explanation.parts())
    return 0 if explanation.ok else Unavailable.exit_code
