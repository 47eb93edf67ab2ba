"""`longca profile`: where the time of a kernel goes."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_local, add_passes, call
from longca.cli._tables import show

HELP = "show where the time of a kernel goes, and the least time of the device; writes traces for Perfetto"
EXAMPLES = (
    "longca profile --kernel tiled.py --mask causal_document --seqlen 8K",
    "longca profile --kernel sdpa:flash --mask causal --seqlen 1K --passes fwd",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernel", required=True, metavar="K", help="a name, a file, FILE.py:KERNEL, or a file at a git revision")
    parser.add_argument("--mask", default="causal", metavar="M", help="a name, a file or an expression (default causal)")
    parser.add_argument("--seqlen", metavar="S", help="tokens (default 509 on a CPU, 8K on a GPU)")
    add_passes(parser)
    parser.add_argument("--out", default="out/profile", metavar="DIR", help="the folder of the traces (default out/profile)")
    add_local(parser, several=False)
    add_json(parser, "print one JSON object per GPU kernel or operation")


def run(args: argparse.Namespace) -> int:
    from longca.api.profile import profile

    found = call(profile, args)
    show(found, args.json, lines=True)
    return 0 if found.ok else 1
