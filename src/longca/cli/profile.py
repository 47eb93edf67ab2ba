"""`longca profile`: where the time of a kernel goes."""

from __future__ import annotations

import argparse

from longca.cli._flags import add_json, add_local, add_passes, flag

HELP = "show where the time of a kernel goes, and the least time of the device; writes traces for Perfetto"
EXAMPLES = (
    "longca profile --kernel tiled.py --mask causal_document --seqlen 8K",
    "longca profile --kernel sdpa:flash --mask causal --seqlen 1K --passes fwd",
)
JSON_LINES = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--kernel", "K", "a name, a file, FILE.py:KERNEL, or a file at a git revision", required=True)
    flag(parser, "--mask", "M", "a name, a file or an expression (default causal)")
    flag(parser, "--seqlen", "S", "tokens (default 509 on a CPU, 8K on a GPU)")
    add_passes(parser)
    flag(parser, "--out", "DIR", "the folder of the traces (default out/profile)")
    add_local(parser, several=False)
    add_json(parser, "print one JSON object per GPU kernel or operation")
