"""`longca verify`: checks kernels, or context-parallel methods, against fp64."""

from __future__ import annotations

import argparse
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from longca.cli import INTERRUPTED, _verify_cp
from longca.cli._documents import add_document_flags
from longca.cli._findings import say, tell
from longca.cli._shape_extras import add_shape_extras
from longca.cli._tables import write_over
from longca.errors import Unavailable
from longca.text import parse_axes, plural

if TYPE_CHECKING:
    from longca.bench.one_device.verify import Finding

STOPPING = (signal.SIGINT, signal.SIGTERM)
HELP = "check kernels, or context-parallel methods, against an fp64 reference; exit code 1 if one is wrong"

EXAMPLES = (
    "longca verify --plugin my_kernel.py                 # your kernel on the twelve masks",
    "longca verify --kernels torch,sdpa --seqlens 509,1K",
    "longca verify --level cp --nproc 2                  # context-parallel methods on ranks",
)
SHOWN_LINES = 10  # of what a kernel prints in one job
ADDRESS = re.compile(r"0x[0-9a-f]+")
KERNELS_HELP = "kernels to check, or all; default: all that run here, with all variants; with --plugin only those of the plugins"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kernels", metavar="A,B:VARIANT", help=KERNELS_HELP)
    parser.add_argument(
        "--masks",
        metavar="A,B",
        help="names, files, expressions such as 'causal & ~sliding_window(w=64)'; all (default): the paper's twelve; every: all static",
    )
    parser.add_argument("--seqlens", metavar="8K,997", help="tokens, any number (default 509 on a CPU, 8K on a GPU)")
    parser.add_argument("--heads", metavar="64:8,8", help="query and KV heads (default 8:2 on a CPU, 64:8 on a GPU)")
    parser.add_argument(
        "--head-dim",
        dest="head_dims",
        metavar="128",
        help="head size; 192/128 if V has its own (default 64 on a CPU, 128 on a GPU)",
    )
    parser.add_argument("--dtype", dest="dtypes", metavar="T,T", help="bf16, fp16, fp32, fp64 (default fp32 on a CPU, bf16 on a GPU)")
    add_shape_extras(parser)
    parser.add_argument(
        "--source", default="random", metavar="NAME", help="how block patterns are selected: random, nsa or moba (default random)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of masks and data (default 0)")
    parser.add_argument(
        "--set",
        metavar="w=512",
        action="append",
        default=[],
        help="a parameter of the masks that have it, with one value; repeatable (below 4K tokens, default windows and blocks are small)",
    )
    add_document_flags(parser)
    parser.add_argument(
        "--deterministic", action="store_true", help="request deterministic backwards, and check that two calls give the same bits"
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="check N times on each data set, to find errors that occur only sometimes",
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")
    parser.add_argument(
        "--plugin", metavar="FILE.py", action="append", default=[], help="a Python file with your kernels or masks; repeatable"
    )
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="S",
        help="the time limit of each step in seconds (default 300, up to 3600 for long sequences)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line instead of a table")
    _verify_cp.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import fields

    from longca.api.verify import VerifyRequest, plan_verify
    from longca.cli._tables import show_parts

    _verify_cp.refuse(args)
    if args.level == "cp":
        with _signals_stop():
            return _verify_cp.run(args)
    typed = {field.name: getattr(args, field.name) for field in fields(VerifyRequest) if hasattr(args, field.name)}
    plan = plan_verify(VerifyRequest(**typed | {"plugins": args.plugin, "params": parse_axes(args.set)}))
    if not args.json:
        print(plan.title, flush=True)
    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    cases, stopped = plan.count(), False
    findings: list[Finding] = []
    try:
        with _signals_stop(), closing(plan.findings(OutputPrinter(), say)) as coming:
            for finding in coming:
                findings.append(finding)
                cases.add(finding)
                tell(finding.kernel, finding, f"{cases.done}/{cases.total}", args.json)
    except KeyboardInterrupt:
        stopped = True  # the findings so far are printed
    verification = plan.verification(findings)
    if not args.json:
        write_over("")
        show_parts(verification.parts())
    if stopped:
        print(f"longca: stopped; {cases.total - cases.done} of {cases.total} cases were not checked.", file=sys.stderr)
        return INTERRUPTED
    if verification.unchecked and not verification.failed:
        raise Unavailable(verification.unchecked)
    if verification.unchecked:
        print(f"longca: {verification.unchecked}", file=sys.stderr)
    return 0 if verification.ok else 1


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Ctrl-C or SIGTERM stops the verification once. Further signals are ignored until the process ends, so that workers are ended and
    results are printed."""

    def stop(number: int, _: FrameType | None) -> None:
        for which in STOPPING:
            signal.signal(which, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is stop:
                signal.signal(number, handler)


class OutputPrinter:
    """Prints the output of kernels: the first and the last lines, because a crash report begins with the line that crashed. Repeated output
    is printed once: a forward that is tried alone crashes as it did with its backward."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __call__(self, kernel: str, output: str) -> None:
        from longca.text import printable

        without_addresses = ADDRESS.sub("", output)
        if self._last.get(kernel) == without_addresses:
            return
        self._last[kernel] = without_addresses
        write_over("")
        lines = [printable(line) for line in output.splitlines()]
        if left_out := len(lines[SHOWN_LINES:]):
            half = SHOWN_LINES // 2
            lines[half:-half] = [f"({plural(left_out, 'line')} left out)"]
        for line in lines:
            print(f"{kernel} prints: {line}", file=sys.stderr, flush=True)
