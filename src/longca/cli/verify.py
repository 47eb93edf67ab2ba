"""`longca verify`: checks kernels, or context-parallel methods, against fp64."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli import INTERRUPTED
from longca.cli._flags import MASKS, add_json, add_local, add_sharing, call, flag, switch, typed
from longca.cli._notes import note
from longca.cli._ranks import take_part
from longca.cli._tables import print_lines, show_parts
from longca.errors import BadInput, Unavailable
from longca.text import plural, printable, say, write_over

if TYPE_CHECKING:
    from longca.bench.many_devices.verify import CpFinding
    from longca.bench.one_device.verify import Finding

HELP = "check kernels, or context-parallel methods, against an fp64 reference; exit code 1 if one is wrong"

EXAMPLES = (
    "longca verify --plugin my_kernel.py                 # your kernel on the twelve masks",
    "longca verify --kernels torch,sdpa --seqlens 509,1K",
    "longca verify --level cp --nproc 2                  # context-parallel methods on ranks",
)
OF_KERNELS = ("source", "deterministic", "repeat", "rows", "quick", "fail_fast", "dump")  # flags that context parallelism lacks
OF_RANKS = ("methods", "nproc", "ranks_per_gpu", "pretend_nodes", "out")
SHOWN_LINES = 10  # of what a kernel prints in one job
ADDRESS = re.compile(r"0x[0-9a-f]+")
# frames of Python, of installed packages and of LongCA in a crash report, and its list of modules
OTHERS = re.compile(rf'  File "({re.escape(str(Path(__file__).parents[1]))}|[^"]*/lib/python|<frozen)|Extension modules: ')
KERNELS_HELP = "kernels to check, or all; default: all that run here, with all variants; with --plugin only those of the plugins"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flag(parser, "--kernels", "A,B:VARIANT", KERNELS_HELP, dest="kernel")
    flag(parser, "--masks", "A,B", f"{MASKS} (default all)")
    flag(parser, "--seqlens", "8K,997", "tokens, any number (default 509 on a CPU, 8K on a GPU)")
    flag(parser, "--source", "NAME", "how block patterns are selected: random, nsa, moba or msa (default random)")
    switch(parser, "--deterministic", "request deterministic backwards, and check that two calls give the same bits")
    flag(parser, "--repeat", "N", "check N times on each data set, to find errors that occur only sometimes", type=int)
    parser.add_argument("--rows", choices=("sampled", "all"), help="rows to compare beyond 512 tokens (default sampled)")
    switch(parser, "--quick", "check three masks (causal, share_question, global_sliding_window), without trials")
    parser.add_argument("-x", "--fail-fast", action="store_true", help="stop at the first failure")
    flag(parser, "--dump", "DIR", "write the tensors of each failure on a mask, with a script that calls the kernel on them")
    add_local(parser, several=True, plugins="your kernels or masks")
    add_json(parser, "print one JSON object per line instead of a table")
    ranks = parser.add_argument_group("context parallelism")
    ranks.add_argument(
        "--level",
        choices=("kernel", "cp"),
        default="kernel",
        help="cp: context-parallel methods on ranks, and transfers between them (default kernel)",
    )
    flag(ranks, "--methods", "A,B", "methods to check, all or peers (default: all that run here)")
    flag(ranks, "--nproc", "N", "number of ranks (default: one per GPU, 2 on CPUs; in a launched job all its ranks)", type=int)
    add_sharing(ranks)
    flag(ranks, "--out", "DIR", "the folder to pack into one file (default longca-cp-N)")


def run(args: argparse.Namespace) -> int:
    from longca.bench.run.runner import Stop

    _refuse_other_level(args)
    with Stop().listening():
        return _verify_methods(args) if args.level == "cp" else _verify_kernels(args)


def _refuse_other_level(args: argparse.Namespace) -> None:
    other = OF_KERNELS if args.level == "cp" else OF_RANKS
    if wrong := [flag for name, flag in typed(args, add_arguments).items() if name in other]:
        level = "kernels; leave out --level cp" if args.level == "cp" else "context parallelism; add --level cp"
        raise BadInput(f"{wrong[0]} is for {level}.")


def _verify_kernels(args: argparse.Namespace) -> int:
    from longca.api.verify import VerifyRequest, plan_verify

    plan = plan_verify(call(VerifyRequest, args), Path())  # no mask is an object, which would be written there
    if not args.json:
        print(plan.title, flush=True)
    for sentence in plan.notes:
        note(sentence)
    done = plan.check(Shower(args.json), OutputPrinter(), say)
    if not args.json:
        write_over("")
        show_parts(done.parts())
    if left := plan.total - len(done.findings):
        print(f"longca: stopped; {left} of {plan.total} cases were not checked.", file=sys.stderr)
    if done.stopped:
        return INTERRUPTED
    if done.unchecked and not done.failed:
        raise Unavailable(done.unchecked)
    if done.unchecked:
        print(f"longca: {done.unchecked}", file=sys.stderr)
    return 0 if done.ok else 1


def _verify_methods(args: argparse.Namespace) -> int:
    """Runs with its own pool of ranks, or as one rank of a launched job, whose first rank prints."""
    from longca.api.verify_cp import check
    from longca.bench.many_devices.grids import ranks_of
    from longca.bench.many_devices.kit import cp_table
    from longca.bench.many_devices.verify import CpRequest, make_level
    from longca.parallel import joining

    request = call(CpRequest, args, kernels=args.kernel)
    launch, level = joining.launched(), make_level(request)
    level.refuse_crowd()
    if launch is None or launch.rank == 0:
        for sentence in level.notes:
            note(sentence)

    def checked() -> int:
        done = check(request, level, Shower(args.json), say, f"longca-cp-{ranks_of(level.suite, request.on)}")
        write_over("")
        if args.json:
            print_lines(done.transfers)
        else:
            show_parts([cp_table(done)])
        if done.broken:
            advice = "" if done.stopped else "; docs/cluster.md says what to do if a rank fails"
            print(f"longca: {done.broken}{advice}.", file=sys.stderr)
        print(f"wrote {done.packed}; attach it if you report a problem", file=sys.stderr if args.json else sys.stdout)
        if not done.failed and not done.checked:
            raise Unavailable("nothing was checked: no method supports any of this here.")
        return INTERRUPTED if done.stopped else 1 if done.failed else 0

    return checked() if launch is None else take_part(launch, level, checked)


class Shower:
    """Prints a finding at once, so that a log has it even if the job is killed."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def __call__(self, count: str, finding: Finding | CpFinding) -> None:
        if self._as_json:
            print_lines([finding])
        elif sys.stderr.isatty():
            write_over(f"[{count}] {finding}")
        else:
            print(f"[{count}] {finding}" + (f": {finding.reason}" if finding.reason else ""), file=sys.stderr, flush=True)


class OutputPrinter:
    """Prints the output of kernels: the first and the last lines, because a crash report begins with the line that crashed, and the user's
    frames. Repeated output is printed once: a forward that is tried alone crashes as it did with its backward."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __call__(self, kernel: str, output: str) -> None:
        without_addresses = ADDRESS.sub("", output)
        if self._last.get(kernel) == without_addresses:
            return
        self._last[kernel] = without_addresses
        write_over("")
        lines = [printable(line) for line in output.splitlines() if not OTHERS.match(line)]
        if left_out := len(lines[SHOWN_LINES:]):
            half = SHOWN_LINES // 2
            lines[half:-half] = [f"({plural(left_out, 'line')} left out)"]
        for line in lines:
            print(f"{kernel} prints: {line}", file=sys.stderr, flush=True)
