"""`longca run`: measures the cells of a suite or of the flags; resumes an existing journal."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

from longca.cli import INTERRUPTED
from longca.cli._flags import (
    HERE,
    MASKS,
    add_device,
    add_documents,
    add_extras,
    add_option,
    add_passes,
    add_plugins,
    add_seed,
    add_set,
    add_shape,
    add_sharing,
    call,
    flag,
    settings,
    switch,
)
from longca.cli._tables import show_parts
from longca.errors import Refused, unknown
from longca.text import parse_list, parse_settings, plural

if TYPE_CHECKING:
    from longca.api.run import RunPlan
    from longca.results.record import Status

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
    flag(what, "--kernels", "A,B", f"names, name:variant, or name:* for all variants; {here}; needed without a suite or a plugin")
    flag(what, "--masks", "A,B", MASKS)
    flag(what, "--seqlens", "S,S", "tokens, such as 1K,8K,32K (default 509 on a CPU, 8K on a GPU)")
    add_shape(what, *HERE)
    add_passes(what)
    add_seed(what, "the seed of masks and data (default 0, or those of the suite)")
    flag(what, "--seeds", "N|A,B", "several seeds: how many, from 0 on; or which, such as 42,43")
    add_set(what, "a parameter of the masks that have it, such as ratio=.2,.5", several=True)
    add_documents(what)
    flag(what, "--source", "NAME", "how block patterns are selected: random, nsa, moba or msa (docs/sparse.md)")
    flag(what, "--dense", "A,B", "kernels that also run the dense mask, as a baseline for block patterns")
    switch(what, "--deterministic", "request deterministic backwards; checked on one device")
    switch(what, "--cudagraph", "capture each call in a CUDA graph, and time its replay")
    add_extras(what)
    flag(what, "--workload", "FILE", "your own training steps instead of masks and lengths, one JSON object per line (docs/measuring.md)")
    add_plugins(what, "your kernels, methods or masks")
    add_device(what)


def _add_ranks(parser: argparse.ArgumentParser) -> None:
    ranks = parser.add_argument_group("context parallelism")
    ranks.add_argument("--level", choices=("kernel", "cp"), help="kernels on one device, or context parallelism (default: the suite's)")
    flag(ranks, "--methods", "A,B", "context-parallel methods, all, or peers (installed ones of other projects); implies --level cp")
    flag(ranks, "--nproc", "N", "number of ranks (default: one per GPU)", type=int)
    add_sharing(ranks)
    flag(ranks, "--grid", "UxR[xW]", "U ranks split heads, R form the ring, W are its windows; 2x2,1x4x2: one for each kind of method")
    add_option(ranks)
    what = "profile a call of each measured cell on every rank: files for ui.perfetto.dev, and a table of what compute hides"
    flag(ranks, "--trace", "DIR", what)


def _add_results(parser: argparse.ArgumentParser) -> None:
    results = parser.add_argument_group("results")
    flag(results, "--out", "DIR", "the folder of the journal (default out/SUITE, or out/run, out/run-cp); an existing journal is resumed")
    results.add_argument("--retry", choices=("failed",), help="measure failed cells again")
    what = "exit code 1 if a cell is error, and wrong, invalid, timeout, doubtful, oom or unavailable; or all of these"
    flag(results, "--fail-on", "A,B", what)
    what = "compare with the run stored in baselines/NAME (the first one is stored); exit code 1 if a cell is slower or missing"
    flag(results, "--baseline", "NAME", what)
    switch(results, "--renew-baseline", "store this run as the baseline")
    flag(results, "--threshold", "PART", "for --baseline: ignore smaller changes (default 3%%)")
    switch(results, "--dry-run", "list all cells and estimate the time of those that the journal lacks, without measuring")
    switch(results, "--print-config", "print the settings as a TOML file for `longca run`")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("clock and limits")
    what = "also run cells that rules skip: O(S²) memory at long lengths, and kernels that were three times slower at two lengths"
    switch(limits, "--full", what)
    flag(limits, "--shard", "I/N", "measure only the I-th of N parts; `longca merge` joins them")
    flag(limits, "--budget", "S", "seconds of sampling per cell", type=float)
    flag(limits, "--energy", "S", "repeat each call for S seconds (1 or more) to measure its energy", type=float)
    what = "a setting of the clock, such as warmup_s=0.06,target=0.01; --print-config shows all"
    settings(limits, "--clock", "clock", parse_settings, what)
    flag(limits, "--memory", "SIZE", "the largest amount of host memory for a worker, such as 16G")
    flag(limits, "--deadline", "S", "the time limit of each step of a cell in seconds, without the start of a worker", type=float)
    limits.add_argument("--workers", choices=("kernel", "one"), help="one process per kernel, or one for all")
    flag(limits, "--stop-after", "S", "start no new cell after S seconds (exit code 3); the same command resumes the run", type=float)


def run(args: argparse.Namespace) -> int:
    from longca.api.request import RunRequest, resolve
    from longca.api.run import as_texts, make_level, plan_run
    from longca.bench.plan.suite import to_toml
    from longca.parallel import joining
    from longca.results.record import LevelName

    request, failing = call(RunRequest, args), failing_statuses(args.fail_on)
    if args.print_config:
        print(to_toml(resolve(request)), end="")
        return 0
    given, request = as_texts(request)
    level = make_level(request, given)
    launch = joining.launched() if level.suite.level is LevelName.CP else None
    first = launch is None or launch.rank == 0  # every rank of a job may refuse, but only the first prints notes
    _say(*(f"note: {note}" for note in level.notes if first))
    if args.dry_run:
        return _dry_run(plan_run(request, level, dry=True)) if first else 0

    def measure() -> int:
        return _measure(args, plan_run(request, level), failing)

    if launch is None:
        return measure()
    from longca.cli._ranks import take_part

    return take_part(launch, level, measure)


def _dry_run(plan: RunPlan) -> int:
    from longca.bench.plan.estimate import estimates_s, refuse_hopeless
    from longca.bench.run import words

    planned, suite = plan.planned, plan.level.suite
    show_parts([words.cell_table([entry.cell for entry in planned]), *plan.level.details(planned)])
    _say(*plan.notes)
    try:
        refuse_hopeless([entry.cell for entry in planned], suite.limits)
    except Refused as error:
        _say(f"this run would be refused here: {error}")
    left = plan.left()
    print(
        words.planned_time(
            len(planned), len(left), sum(estimates_s(left, suite, plan.request.full, plan.level.compile_s).values()), plan.folder
        )
    )
    return 0


def _say(*sentences: str) -> None:
    for sentence in sentences:
        if sentence:
            print(sentence, file=sys.stderr)


def _measure(args: argparse.Namespace, plan: RunPlan, failing: Collection[Status]) -> int:
    from longca.bench.run import words

    _say(*plan.notes)
    done = plan.measure()
    show_parts(done.parts())
    if args.trace:
        from longca.bench.many_devices import overlap

        show_parts(["", overlap.table(done.records), f"traces, for ui.perfetto.dev: {args.trace}"])
    if remark := words.faults(done.statuses, failing):
        print(remark)
    if done.left:
        print(f"stopped with {plural(done.left, 'cell')} left; to continue: {args.command_line}")
        return INTERRUPTED if done.finished.interrupted else MORE_TO_DO
    if remark := words.nothing_ran(done.records):
        print(remark)
        return 1
    slower = done.against is not None and not done.against.ok
    return 1 if slower or any(done.statuses.get(status) for status in failing) else 0


def failing_statuses(text: str | None) -> frozenset[Status]:
    """Returns the statuses of `--fail-on`; `all` means those that `--retry failed` measures again. An error always counts: whether such a
    cell is wrong is not known."""
    from longca.results.record import RETRIED, Status

    names = parse_list(text or "")
    known = sorted(status.value for status in RETRIED)
    for name in names:
        if name not in (*known, "all"):
            raise unknown("status for --fail-on", name, [*known, "all"])
    return RETRIED if "all" in names else frozenset([*map(Status, names), *([Status.ERROR] if names else [])])
