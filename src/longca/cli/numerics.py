"""`longca numerics`: how far kernels and context-parallel methods are from fp64, and whether their bits repeat."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_device, add_json, add_seed, add_set, flag
from longca.errors import Refused

HELP = "compare kernels and methods with fp64, and their bits with a second call's"
EXAMPLES = (
    "longca numerics                                                   # all kernels that run here",
    "longca numerics --methods all --ranks 2,8,64                      # does context parallelism change my loss?",
    "longca numerics --kernels fa4,flex --dtypes bf16,fp16 --seqlens 1K,4K,16K",
)
JSON_LINES, FAILED = True, Refused.exit_code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--kernels", "A,B:VARIANT", "default: all that run here; methods run the first one")
    flag(parser, "--masks", "A,B", "default: causal,sliding_window_causal")
    flag(parser, "--seqlens", "S,S", "tokens (default 512,1K,2K)")
    flag(parser, "--dtypes", "T,T", "bf16, fp16, fp32 (default bf16)")
    flag(parser, "--methods", "A,B", "context-parallel methods, or all, on ranks that are threads")
    flag(parser, "--ranks", "N,N", "ranks of the methods, up to 64 (default 2,8)")
    flag(parser, "--heads", "Q:KV", "query and KV heads (default 8:2)")
    flag(parser, "--head-dim", "D", "head size (default 64)")
    add_seed(parser)
    add_set(parser, "a parameter of the masks that have it, such as w=64")
    add_device(parser)
    add_json(parser, "print one JSON object per row")
