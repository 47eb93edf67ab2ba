"""`longca explain`: which kernels `best` would run, and why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from longca.cli._documents import add_document_flags
from longca.cli._tables import show_parts

HELP = "show which kernels `best`, the default of longca.attention, would choose for a call, and why; exit code 2 if there is none"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--mask", required=True, help="a name from `longca ls masks`, a file, or an expression such as 'causal & full'")
    parser.add_argument("--seqlen", required=True, metavar="S", help="tokens, such as 128K")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 64:8)")
    parser.add_argument("--head-dim", metavar="D", help="head size; 192/128 if V has its own (default 128)")
    parser.add_argument("--dtype", help="bf16, fp16, fp32 or fp64 (default bf16, on a CPU fp32)")
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a model (`longca ls models`)")
    parser.add_argument("--forward-only", action="store_true", help="assume a call without a backward")
    parser.add_argument("--deterministic", action="store_true", help="assume a call with a deterministic backward")
    parser.add_argument("--softcap", type=float, metavar="C", help="capped scores")
    parser.add_argument("--sinks", action="store_true", default=None, help="attention sinks")
    parser.add_argument("--set", action="append", default=[], metavar="w=512", help="a parameter of the mask; repeatable")
    add_document_flags(parser)
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of the mask (default 0)")
    parser.add_argument(
        "--device",
        metavar="NAME",
        help="cpu, cuda, or words of a device's name, such as H200, if LongCA has records of it (default: this machine)",
    )
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="a Python file with your masks or kernels")
    parser.add_argument("--try", dest="run_trial", action="store_true", help="run the trial now if one is needed, and store its result")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from longca.api.explain import encoded, explain
    from longca.errors import Unavailable
    from longca.text import parse_settings

    _load(args.plugin)
    explanation = explain(
        args.mask, args.seqlen, args.heads, args.head_dim, args.dtype, backward=not args.forward_only, deterministic=args.deterministic,
        softcap=args.softcap, sinks=args.sinks, model=args.model, device=args.device, seed=args.seed, params=parse_settings(args.set),
        documents=args.documents, distribution=args.distribution, packing=args.packing, run_trial=args.run_trial,
    )  # fmt: skip
    if args.json:
        print(encoded(explanation))
    else:
        show_parts(explanation.parts())
    return 0 if explanation.ok else Unavailable.exit_code


def _load(plugins: Sequence[str]) -> None:
    """Loads masks and kernels of plugin files, and prints a note on each kernel that `best` never chooses."""
    from longca import masks
    from longca.kernels import registry
    from longca.kernels.base import Preference

    for path in plugins:
        masks.load_plugin(path)
        for name in registry.load_plugin(path):
            if registry.get(name).preference == Preference():
                print(f"note: {name} sets no `preference`, so `best` never chooses it (docs/write-a-kernel.md).", file=sys.stderr)
