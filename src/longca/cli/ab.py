"""`longca ab`: times two kernels in turns."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_local, add_passes, flag

HELP = "time two kernels in turns, to see small changes in under a minute; exit code 1 if B is slower or wrong"
EXAMPLES = (
    "longca ab HEAD tiled.py                             # the file as committed, and as it is now",
    "longca ab v1.py v2.py:fast --masks causal,causal_document --seqlens 8K",
    "longca ab sdpa:math sdpa:flash --passes fwd",
)
SIDE = "a kernel, a file, FILE.py:KERNEL, a file at a git revision such as HEAD~1:tiled.py, or a revision of the other side's file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="A", help=SIDE)
    parser.add_argument("new", metavar="B", help="the kernel that is judged, written in the same ways")
    flag(parser, "--masks", "A,B", "names, files or expressions, as in `longca run` (default causal)")
    flag(parser, "--seqlens", "S,S", "tokens (default 509 on a CPU, 8K on a GPU)")
    add_passes(parser)
    flag(parser, "--threshold", "PART", "smaller changes count as SAME (default 1%%)")
    flag(parser, "--seconds", "S", "how long to go on without a verdict (default 50); many masks need more", type=float)
    add_local(parser, several=True)
    add_json(parser)
