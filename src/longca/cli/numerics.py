"""`longca numerics`: how far kernels and context-parallel methods are from fp64, and whether their bits repeat."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_device, add_json, add_seed, add_set
from longca.errors import Refused

HELP = "compare kernels and methods with fp64, and their bits with a second call's"
EXAMPLES = (
    "longca numerics                                                   # all kernels that run here",
    "longca numerics --methods all --ranks 2,8,64                      # does context parallelism change my loss?",
    "longca numerics --kernels fa4,flex --dtypes bf16,fp16 --seqlens 1K,4K,16K",
)
JSON_LINES, FAILED = True, Refused.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", metavar="A,B:VARIANT", help="default: all that run here; methods run the first one")
    parser.add_argument("--masks", metavar="A,B", help="default: causal,sliding_window_causal")
    parser.add_argument("--seqlens", metavar="S,S", help="tokens (default 512,1K,2K)")
    parser.add_argument("--dtypes", metavar="T,T", help="bf16, fp16, fp32 (default bf16)")
    parser.add_argument("--methods", metavar="A,B", help="context-parallel methods, or all, on ranks that are threads")
    parser.add_argument("--ranks", metavar="N,N", help="ranks of the methods, up to 64 (default 2,8)")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads (default 8:2)")
    parser.add_argument("--head-dim", metavar="D", help="head size (default 64)")
    add_seed(parser)
    add_set(parser, "a parameter of the masks that have it, such as w=64")
    add_device(parser)
    add_json(parser, "print one JSON object per row")
