"""`longca run`: measures the cells of a suite or of the flags; resumes an existing journal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from longca.cli import INTERRUPTED
from longca.cli._documents import add_document_flags
from longca.cli._ranks import take_part
from longca.cli._shape_extras import add_shape_extras
from longca.errors import Refused, unknown
from longca.text import parse_axes, parse_list, parse_settings, plural

if TYPE_CHECKING:
    from longca.api.request import RunRequest
    from longca.api.run import RunPlan
    from longca.results.record import Record, Status

HELP = "measure a suite, or the kernels and masks that flags name; resumes an existing run"
EXAMPLES = (
    "longca run quick                                    # the twelve masks, small, on a CPU",
    "longca run paper-kernel --dry-run                   # which cells, and how long",
    "longca run --kernels fa4,flex --masks causal,share_question --seqlens 8K,32K --out out/mine",
    "longca run --plugin my_kernel.py --kernels my_kernel,sdpa --masks all --seqlens 1K --out out/mine",
    "longca run --methods ulysses,magi --masks causal --seqlens 1K --nproc 2 --out out/cp",
)
MORE_TO_DO = 3  # the exit code if --stop-after left cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", help="a name from `longca ls suites`, or your own TOML file; flags override it")
    _add_problem(parser)
    _add_ranks(parser)
    _add_results(parser)
    _add_limits(parser)


def _add_problem(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group(
        "what to measure",
        "default without a suite: the twelve masks, forward and backward; with --methods 1K tokens, 64:8 heads of 128 and bf16",
    )
    here = "all: every kernel that runs here, the default with --plugin"
    what.add_argument("--kernels", metavar="A,B", help=f"names or name:variant; {here}; needed without a suite or a plugin")
    what.add_argument(
        "--masks",
        metavar="A,B",
        help="names, files, expressions such as 'causal & sliding_window(w=512)'; all: the paper's twelve; every: all static masks",
    )
    what.add_argument("--seqlens", metavar="S,S", help="tokens, such as 1K,8K,32K (default 509 on a CPU, 8K on a GPU)")
    what.add_argument("--heads", metavar="Q:KV", help="query and KV heads, such as 64:8,64:64 (default 8:2 on a CPU, 64:8 on a GPU)")
    what.add_argument(
        "--head-dim", dest="head_dims", metavar="D", help="head size; 192/128 if V has its own (default 64 on a CPU, 128 on a GPU)"
    )
    what.add_argument("--dtype", dest="dtypes", metavar="T", help="bf16, fp16, fp32, fp64 (default fp32 on a CPU, bf16 on a GPU)")
    what.add_argument("--passes", metavar="P,P", help="fwd, bwd, fwd+bwd (default fwd,bwd)")
    what.add_argument("--seeds", metavar="N|A,B", help="how many seeds, from 0 on; or a list such as 42,43; 42, is the seed 42 alone")
    what.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="a parameter of the masks that have it, such as ratio=.2,.5; repeatable",
    )
    add_document_flags(what)
    what.add_argument("--source", metavar="NAME", help="how block patterns are selected: random, nsa or moba (docs/sparse.md)")
    what.add_argument("--dense", metavar="A,B", help="kernels that also run the dense mask, as a baseline for block patterns")
    what.add_argument("--deterministic", action="store_true", default=None, help="request deterministic backwards; checked on one device")
    add_shape_extras(what)
    what.add_argument(
        "--workload",
        metavar="FILE",
        help="your own training steps instead of masks and lengths, one JSON object per line (docs/measuring.md)",
    )
    what.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="a Python file with your kernels, methods or masks; repeatable"
    )
    what.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda if there is a GPU")


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    ranks = parser.add_argument_group("context parallelism")
    ranks.add_argument("--level", choices=("kernel", "cp"), help="kernels on one device, or context parallelism (default: the suite's)")
    ranks.add_argument(
        "--methods", metavar="A,B", help="context-parallel methods, all, or peers (installed ones of other projects); implies --level cp"
    )
    ranks.add_argument("--nproc", type=int, metavar="N", help="number of ranks (default: one per GPU)")
    ranks.add_argument(
        "--grid",
        metavar="UxR[xW]",
        help="U ranks split heads, R form the ring, W are its windows; 2x2,1x4x2: one for usp, one for methods with windows",
    )
    ranks.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="an option of the methods that have it, such as stages=4 or windows=2,4 (`longca ls cp`); repeatable",
    )


def _add_results(parser: argparse.ArgumentParser) -> None:
    results = parser.add_argument_group("results")
    results.add_argument(
        "--out", metavar="DIR", help="the folder of the journal (default out/SUITE, or out/run, out/run-cp); an existing journal is resumed"
    )
    results.add_argument("--retry", choices=("failed",), help="measure failed cells again")
    results.add_argument(
        "--fail-on",
        metavar="A,B",
        help="exit code 1 if a cell is wrong, error, invalid, timeout, doubtful, oom or unavailable; or all of these",
    )
    results.add_argument(
        "--baseline",
        metavar="NAME",
        help="compare with the run stored in baselines/NAME (the first run is stored there); exit code 1 if a cell is slower or missing",
    )
    results.add_argument("--renew-baseline", action="store_true", help="store this run as the baseline")
    results.add_argument("--threshold", metavar="PART", help="for --baseline: ignore smaller changes (default 3%%)")
    results.add_argument(
        "--dry-run", action="store_true", help="list all cells and estimate the time of those that the journal lacks, without measuring"
    )
    results.add_argument("--print-config", action="store_true", help="print the settings as a TOML file for `longca run`")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("clock and limits")
    limits.add_argument(
        "--full",
        action="store_true",
        help="also run cells that rules skip: O(S²) memory at long lengths, and kernels that were three times slower at two lengths",
    )
    limits.add_argument("--shard", metavar="I/N", help="measure only the I-th of N parts; `longca merge` joins them")
    limits.add_argument("--budget", type=float, metavar="S", help="seconds of sampling per cell")
    limits.add_argument("--energy", type=float, metavar="S", help="repeat each call for S seconds (1 or more) to measure its energy")
    limits.add_argument(
        "--clock",
        action="append",
        default=[],
        metavar="NAME=V",
        help="a setting of the clock, such as warmup_s=0.06,target=0.01; repeatable; --print-config shows all",
    )
    limits.add_argument("--memory", metavar="SIZE", help="the largest amount of host memory for a worker, such as 16G")
    limits.add_argument(
        "--deadline", type=float, metavar="S", help="the time limit of each step of a cell in seconds, without the start of a worker"
    )
    limits.add_argument("--workers", choices=("kernel", "one"), help="one process per kernel, or one for all")
    limits.add_argument(
        "--stop-after", type=float, metavar="S", help="start no new cell after S seconds (exit code 3); the same command resumes the run"
    )


def request_of(args: argparse.Namespace) -> RunRequest:
    """Returns the request of the command line."""
    from dataclasses import fields

    from longca.api.request import RunRequest

    typed = {field.name: getattr(args, field.name) for field in fields(RunRequest) if hasattr(args, field.name)}
    return RunRequest(
        **typed
        | {"plugins": args.plugin, "params": parse_axes(args.set), "options": parse_axes(args.option), "clock": parse_settings(args.clock)}
    )


def run(args: argparse.Namespace) -> int:
    from longca.api.request import resolve
    from longca.api.run import make_level, plan_run, settle
    from longca.bench.plan.suite import to_toml
    from longca.parallel import joining
    from longca.results.record import LevelName

    request, failing = request_of(args), failing_statuses(args.fail_on)
    if args.print_config:
        print(to_toml(resolve(request)), end="")
        return 0
    suite, device = settle(request)
    launch = joining.launched() if suite.level is LevelName.CP else None
    level = make_level(request, suite, device)
    first = launch is None or launch.rank == 0  # every rank of a job may refuse, but only the first prints notes
    for note in level.notes if first else []:
        print(f"note: {note}", file=sys.stderr)
    if args.dry_run:
        return _dry_run(plan_run(request, level, dry=True), args.out) if first else 0

    def measure() -> int:
        return _measure(args, plan_run(request, level), failing)

    return measure() if launch is None else take_part(launch, device, suite.limits.start_s, measure)


def _dry_run(plan: RunPlan, out: str | None) -> int:
    from msgspec.structs import asdict

    from longca.bench.plan.estimate import estimates_s, refuse_hopeless
    from longca.cli._tables import show_table
    from longca.text import format_dims, format_duration, format_extras, format_heads, format_size

    planned, suite = plan.planned, plan.level.suite
    _say(plan.empty_shard)
    split = any(entry.cell.split for entry in planned)
    columns = (*(("method", "ranks", "grid") if split else ()), "kernel", "mask", "length", "heads", "head size", "dtype", "pass", "seed")
    rows = []
    for cell in (entry.cell for entry in planned):
        names = (cell.split.method, cell.problem.ranks, cell.split.shape) if cell.split else ()
        fields = asdict(cell.problem)
        shape = (
            format_heads(fields),
            ", ".join([format_dims(fields), *format_extras(fields)]),
            cell.problem.dtype,
            cell.problem.pass_.value,
            cell.problem.seed,
        )
        rows.append((*names, cell.kernel, cell.problem.mask_title, format_size(cell.problem.seqlen), *shape))
    show_table(columns, rows)
    for line in plan.level.details(planned):
        print(line)
    _say(*plan.left_out)
    try:
        refuse_hopeless(planned, suite.limits)
    except Refused as error:
        _say(f"this run would be refused here: {error}")
    left = plan.left(out)
    done, duration = len(planned) - len(left), format_duration(sum(estimates_s(left, suite).values()))
    if not done:
        print(f"{plural(len(planned), 'cell')}, about {duration}")
    elif left:
        print(f"{plural(len(planned), 'cell')}, {done} of them done in {plan.folder(out)}; about {duration} for the {len(left)} left")
    else:
        print(f"{plural(done, 'cell')}, {'done' if done == 1 else 'all done'} in {plan.folder(out)}")
    return 0


def _say(*sentences: str) -> None:
    for sentence in sentences:
        if sentence:
            print(sentence, file=sys.stderr)


def _measure(args: argparse.Namespace, plan: RunPlan, failing: Collection[Status]) -> int:
    from longca.cli._tables import show_parts

    _say(plan.empty_shard, *plan.notes)
    done = plan.measure(args.out)
    show_parts(done.parts())
    if remark := faults(done.statuses, failing):
        print(remark)
    if done.left:
        print(f"stopped with {plural(done.left, 'cell')} left; to continue: {args.command_line}")
        return INTERRUPTED if done.finished.interrupted else MORE_TO_DO
    if remark := nothing_ran(done.records):
        print(remark)
        return 1
    slower = done.against is not None and not done.against.ok
    return 1 if slower or any(done.statuses.get(status) for status in failing) else 0


def nothing_ran(records: Sequence[Record]) -> str:
    """One line where no cell of a run was even tried, which is exit code 1: who asked for figures has none. Empty where one was."""
    from longca.results.record import NEVER_RAN

    if not records or any(record.status not in NEVER_RAN for record in records):
        return ""
    first, kinds = records[0], " or ".join(dict.fromkeys(record.status for record in records))
    cells = "the only cell is" if len(records) == 1 else f"all {len(records)} cells are"
    return f"nothing was measured, so the exit code is 1: {cells} {kinds}; {first.asked}: {first.reason.rstrip('.')}."


def failing_statuses(text: str | None) -> frozenset[Status]:
    """Returns the statuses of `--fail-on`; `all` means those that `--retry failed` measures again."""
    from longca.results.record import RETRIED, Status

    names = parse_list(text or "")
    known = sorted(status.value for status in RETRIED)
    for name in names:
        if name not in (*known, "all"):
            raise unknown("status for --fail-on", name, [*known, "all"])
    return RETRIED if "all" in names else frozenset(map(Status, names))


def faults(statuses: Mapping[Status, int], failing: Collection[Status]) -> str:
    """Returns one line on failed cells: why the exit code is 1, or how to make it 1. Empty if none failed."""
    from longca.results.record import AT_FAULT

    seen = [status for status in (*AT_FAULT, *sorted(set(failing) - set(AT_FAULT))) if statuses.get(status)]
    if not seen:
        return ""
    total = sum(statuses[status] for status in seen)
    many = f"{plural(total, 'cell')} {'is' if total == 1 else 'are'} {seen[0]}" if len(seen) == 1 else ""
    words = many or f"{plural(total, 'cell')} failed ({', '.join(f'{statuses[status]} {status}' for status in seen)})"
    if asked := [status for status in seen if status in failing]:
        return f"{words}: exit code 1, as --fail-on {','.join(asked)} asks."
    return f"{words}; --fail-on {','.join(seen)} makes that exit code 1."
