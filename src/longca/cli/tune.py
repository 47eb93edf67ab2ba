"""`longca tune`: measures the kernels that `best` may choose, before they are needed."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_device, flag
from longca.cli.explain import add_call

HELP = "measure the kernels that `best`, the default of longca.attention, may choose for a call; later calls of its class do not autotune"
EXAMPLES = (
    "longca tune --mask causal_document --seqlen 32K --heads 64:8       # on one GPU, before training",
    "longca tune --mask causal --seqlen 8K --model llama3-8b --forward-only",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_call(parser)
    add_device(parser)
    flag(parser, "--budget", "S", "seconds of samples per kernel and pass", type=float)
