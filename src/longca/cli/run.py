"""`longca run`: measure the cells of a suite, or of what the flags say; again on the same folder goes on where it stopped."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from longca.cli import INTERRUPTED
from longca.cli._asked_suite import clock_settings, refuse_energy, resolve
from longca.cli._ranks import launched, settle, take_part
from longca.errors import BadInput, Unavailable
from longca.text import plural

if TYPE_CHECKING:
    from longca.bench.catalogue import Catalogue
    from longca.bench.plan import Planned
    from longca.bench.suite import Suite

HELP = "measure a suite of cells, or resume one"
DEFAULT_OUT = {"kernel": "run", "sparse": "run", "cp": "run-cp"}  # where no suite gives a name: levels are not to be mixed
MORE_TO_DO = 3  # the exit code where --stop-after left cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", help="a name from `longca ls suites`, or your own TOML file; flags change it")
    parser.add_argument("--kernels", metavar="A,B", help="names or name:variant, or all (those that run here)")
    parser.add_argument("--level", choices=("kernel", "cp"), help="one device, or context parallelism over many (default: the suite's)")
    parser.add_argument("--methods", metavar="A,B", help="context parallel methods, or all; implies --level cp")
    parser.add_argument("--nproc", type=int, metavar="N", help="ranks of the level cp (default: one per GPU)")
    parser.add_argument(
        "--grid",
        metavar="UxR[xW]",
        help="ranks that split heads, ranks of the ring, its windows; 2x2,1x4x2: one for usp, one for methods with windows",
    )
    parser.add_argument("--masks", metavar="A,B", help="names, or all (the twelve)")
    parser.add_argument("--source", metavar="NAME", help="where block patterns come from: random, nsa or moba (docs/sparse.md)")
    parser.add_argument("--dense", metavar="A,B", help="kernels that run the dense mask beside block patterns")
    parser.add_argument("--seqlens", metavar="S,S", help="tokens, such as 1K,8K,32K")
    parser.add_argument("--heads", metavar="Q:KV", help="query and KV heads, such as 64:8,64:64")
    parser.add_argument("--head-dim", dest="head_dims", metavar="D", help="head size, such as 128, or 192/128 where V has another one")
    parser.add_argument("--dtype", dest="dtypes", metavar="T", help="bf16, fp16, fp32, fp64")
    parser.add_argument("--passes", metavar="P,P", help="fwd, bwd, fwd+bwd")
    parser.add_argument("--seeds", metavar="N|A,B", help="how many seeds, counted from 0; or which, as 42,43 or 42,")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=V,V",
        help="a parameter of the masks that have it, such as ratio=.2,.5; repeatable",
    )
    parser.add_argument("--distribution", metavar="NAME|FILE", help="what document lengths are drawn from")
    parser.add_argument("--packing", metavar="NAME", help="draw, mixed or chunked")
    parser.add_argument("--deterministic", action="store_true", default=None, help="ask for deterministic backwards; checked on one device")
    parser.add_argument(
        "--workload",
        metavar="FILE",
        help="your training steps, one JSON object per line, in place of masks and lengths (docs/measuring.md)",
    )
    parser.add_argument("--model", metavar="NAME", help="heads, head size and window of a well-known model")
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="a Python file with your kernels or methods; repeatable"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument(
        "--out", metavar="DIR", help="where the journal is written (default out/SUITE, or out/run, out/run-cp); an existing one is resumed"
    )
    parser.add_argument("--retry", choices=("failed",), help="run cells again that failed")
    parser.add_argument("--full", action="store_true", help="run kernels with O(S²) memory at any length")
    parser.add_argument("--shard", metavar="I/N", help="only the I-th of N parts; `longca merge` joins them")
    parser.add_argument("--budget", type=float, metavar="S", help="seconds of sampling per cell")
    parser.add_argument("--energy", type=float, metavar="S", help="repeat each call for S seconds (1 or more) to measure its energy")
    parser.add_argument(
        "--clock",
        action="append",
        default=[],
        metavar="NAME=V",
        help="a setting of the clock, such as warmup_s=0.06,target=0.01; repeatable, --print-config shows them all",
    )
    parser.add_argument("--memory", metavar="SIZE", help="host memory a worker may take, such as 16G")
    parser.add_argument("--deadline", type=float, metavar="S", help="seconds that each step of a cell may take, starting apart")
    parser.add_argument("--workers", choices=("kernel", "one"), help="a process per kernel, or one for all")
    parser.add_argument(
        "--stop-after", type=float, metavar="S", help="begin nothing new after S seconds: exit code 3, and the same command goes on"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the cells and guess the time, measure nothing")
    parser.add_argument("--print-config", action="store_true", help="print the settings as a TOML file that `longca run` takes")


def run(args: argparse.Namespace) -> int:
    from longca import devices
    from longca.bench import levels
    from longca.bench import suite as suites
    from longca.bench.compilations import keep_on_disk

    suite = resolve(args)
    if args.print_config:
        print(suites.to_toml(suite), end="")
        return 0
    device = args.device or devices.kind()
    devices.require(device)
    if clock_settings(args).get("energy_s"):
        refuse_energy(device)
    if device == "cuda":
        keep_on_disk()
    found = levels.part(suite.level, "catalogue")(suite, args.plugin, device, only_named=args.kernels is not None)
    launch = launched(suite)
    if launch is not None and launch.rank and args.dry_run:
        return 0
    suite = settle(args, suite, device, launch.rank if launch else 0)

    def measure() -> int:
        planned = _plan(args, suite, found, device)
        if args.dry_run:
            return _dry_run(planned, suite, found)
        _refuse_nothing_runs(found, device)
        return _execute(args, suite, found, planned, device)

    if launch is None or args.dry_run:
        return measure()
    return take_part(launch, suite, device, measure)


def _plan(args: argparse.Namespace, suite: Suite, found: Catalogue, device: str) -> list[Planned]:
    from longca.bench import levels, plan
    from longca.bench.environment import device_model
    from longca.bench.workload import read_workload

    steps = read_workload(args.workload) if args.workload else []
    if not found.entries:
        raise BadInput("no kernel runs here; `longca doctor` says what to install.")
    cells = levels.part(suite.level, "cells")(suite, found.for_all_masks, device, steps)
    planned = plan.plan(cells, device_model(device), found.versions)
    levels.part(suite.level, "admit")(planned, suite, device, only_named=args.methods not in (None, "all") or args.grid is not None)
    if not args.shard:
        return planned
    mine = plan.shard(planned, args.shard)
    if not mine:
        _say_empty_shard(args.shard, planned)
    return mine


def _say_empty_shard(shard: str, planned: list[Planned]) -> None:
    import sys

    problems = plural(len({entry.cell.problem for entry in planned}), "problem")
    why = f"there is only {problems} (mask, length, shape, seed) to share, and none is split"
    print(f"shard {shard} holds no cell: {why}.", file=sys.stderr)


def _refuse_nothing_runs(found: Catalogue, device: str) -> None:
    """A run of which every cell would be `unavailable` measures nothing."""
    from longca.kernels import registry
    from longca.kernels.base import No

    missing = dict[str, str]()
    for label, entry in found.entries.items():
        answers = [registry.available(kernel, device) for kernel in registry.choices(label)] if entry.plugin is None else []
        reasons = [answer.reason for answer in answers if isinstance(answer, No)]
        if not answers or len(reasons) < len(answers):
            return
        missing[label] = reasons[0]
    if missing:
        raise Unavailable(f"none of the kernels runs here: {'; '.join(f'{label}: {why}' for label, why in missing.items())}.")


def _dry_run(planned: list[Planned], suite: Suite, found: Catalogue) -> int:
    from longca.bench.plan import estimate_s
    from longca.cli._tables import show_table
    from longca.text import format_duration, format_size

    cells = [entry.cell for entry in planned]
    columns = (*dict(cells[0].extra if cells else ()), "kernel", "mask", "length", "heads", "head size", "dtype", "pass", "seed")
    rows = [
        (c.kernel, c.mask_title, format_size(c.seqlen), f"{c.heads_q}:{c.heads_kv}", c.head_dim, c.dtype, c.which, c.seed) for c in cells
    ]
    show_table(columns, [(*dict(c.extra).values(), *row) for c, row in zip(cells, rows, strict=True)])
    _say_left_out(found)
    print(f"{plural(len(planned), 'cell')}, about {format_duration(estimate_s(planned, suite))}")
    return 0


def _say_left_out(found: Catalogue) -> None:
    import sys

    by_reason: dict[str, list[str]] = {}
    for label, reason in found.left_out.items():
        by_reason.setdefault(reason, []).append(label)
    for reason, labels in by_reason.items():
        print(f"left out: {', '.join(labels)} ({reason})", file=sys.stderr)


def _execute(args: argparse.Namespace, suite: Suite, found: Catalogue, planned: list[Planned], device: str) -> int:
    import time
    from pathlib import Path

    from longca.bench import environment, levels, runner
    from longca.bench.journal import Journal
    from longca.bench.plan import jobs, left_to_do
    from longca.bench.progress import progress
    from longca.report.reading import read_environments, replaced

    model = environment.device_model(device)
    facts = environment.describe(device, suite, [label for label, entry in found.entries.items() if entry.plugin is None])
    facts |= _plugin_files(found)
    out = Path(args.out) if args.out else Path("out") / (Path(args.suite).stem if args.suite else DEFAULT_OUT[suite.level])
    _say_left_out(found)
    with Journal(out) as journal:
        journal.add_environment(environment.name_of(facts), facts | {"date": environment.today()})
        todo = left_to_do(planned, journal.records, retry=args.retry == "failed", full=args.full)
        for record in replaced(journal.history, read_environments(out), {entry.key for entry in planned}):
            journal.add(record)  # somebody went back to what a later version had replaced: the last one counts
        cache = runner.cache_folder(journal.folder)
        todo_jobs = jobs(todo, suite.limits.workers)
        with progress(len(todo)) as watcher:
            if journal.torn:
                watcher.say(f"dropped a torn last line of {journal.torn} bytes; its cell is measured again.")
            if len(todo) < len(planned):
                done = f"{len(planned) - len(todo)} of {plural(len(planned), 'cell')}"
                watcher.say(f"resuming {out}: {done} {'is' if len(planned) == 1 else 'are'} done.")
            executor = levels.part(suite.level, "executor")(suite, found, device, model, cache, args.full)
            if device == "cuda":
                executor.start(todo_jobs)
            start = time.monotonic()
            ended = runner.execute(todo_jobs, executor, journal, environment.name_of(facts), watcher, args.stop_after)
            spent_s = time.monotonic() - start
        written = journal.written()
    records = [written[entry.key] for entry in planned if entry.key in written]
    own = dict.fromkeys(label.partition(":")[0] for label, entry in found.entries.items() if entry.plugin is not None)
    _summary(records, out, own)
    if todo:
        print(where_the_time_went(spent_s, executor.spent_s))
    if not ended.left:
        return 0
    print(f"stopped with {plural(ended.left, 'cell')} left; to go on: {args.command_line}")
    return INTERRUPTED if ended.interrupted else MORE_TO_DO


def _plugin_files(found: Catalogue) -> dict[str, dict[str, list[str]]]:
    """For the journal: the files as they were typed with the kernels that come from each; one that every rank loads has no names."""
    files: dict[str, set[str]] = {path: set() for path in found.plugins}
    for label, entry in found.entries.items():
        if entry.plugin is not None:
            files.setdefault(entry.plugin, set()).add(label.partition(":")[0])
    return {"plugins": {path: sorted(names) for path, names in files.items()}} if files else {}


def _summary(records: list[dict[str, Any]], out: object, own: Iterable[str]) -> None:
    """What was fastest, how kernels of one's own stand, and what failed."""
    from longca.bench.summary import counts, failures, fastest
    from longca.cli._tables import show_table
    from longca.compare.standing import tables
    from longca.results.reading import read

    kernels = list(own)
    results = read(str(out)) if kernels else None
    stand = [table for kernel in kernels for table in tables(results, kernel)] if results else []
    for title, columns, rows in [*fastest(records), *stand, failures(records)]:
        if rows:
            print(f"\n{title}")
            show_table(columns, rows)
    print(f"\n{plural(len(records), 'cell')}: {counts(records)}; written to {out}/results.jsonl")


def where_the_time_went(all_s: float, by_phase: Mapping[str, float]) -> str:
    """One line, the largest part first; what no phase counts is mostly keeping the journal."""
    from longca.bench.outcome import PHASES
    from longca.text import format_duration

    titles = PHASES | {"build": "building and compiling", "reference": "references"}
    parts = {titles.get(phase, phase): seconds for phase, seconds in by_phase.items()}
    parts["the rest"] = max(0.0, all_s - sum(by_phase.values()))
    shown = [f"{title} {seconds:.0f} s" for title, seconds in sorted(parts.items(), key=lambda part: -part[1]) if seconds >= 0.5]
    return f"it took {format_duration(all_s)}" + (f": {', '.join(shown)}" if shown else "")
