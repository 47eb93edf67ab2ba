"""`longca run`: measures the cells of a suite, or of the flags; called again on the same folder it resumes."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from longca.cli import INTERRUPTED
from longca.cli._ranks import take_part
from longca.cli._request import add_shape_extras, clock_settings, failing_statuses, refuse_energy, resolve
from longca.errors import Refused
from longca.text import plural

if TYPE_CHECKING:
    from longca.bench.plan.cells import Planned
    from longca.bench.plan.suite import Suite
    from longca.bench.run.campaign import Finished
    from longca.bench.run.level import Level
    from longca.results.record import Status

HELP = "measure a suite of cells, or resume one"
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
    parser.add_argument("--masks", metavar="A,B", help="names, or all (the static masks)")
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
    add_shape_extras(parser)
    parser.add_argument(
        "--workload",
        metavar="FILE",
        help="your training steps, one JSON object per line, in place of masks and lengths (docs/measuring.md)",
    )
    parser.add_argument("--model", metavar="NAME", help="heads, head size, window, softcap and sinks of a well-known model")
    parser.add_argument(
        "--plugin", action="append", default=[], metavar="FILE", help="a Python file with your kernels or methods; repeatable"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is a GPU")
    parser.add_argument(
        "--out", metavar="DIR", help="where the journal is written (default out/SUITE, or out/run, out/run-cp); an existing one is resumed"
    )
    parser.add_argument("--retry", choices=("failed",), help="run cells again that failed")
    parser.add_argument(
        "--fail-on",
        metavar="A,B",
        help="exit code 1 if a cell ends as wrong, error, invalid, timeout, doubtful, oom or unavailable; or all of these",
    )
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
    from longca.bench.one_device.compiled_code import keep_on_disk
    from longca.bench.plan.suite import to_toml
    from longca.parallel import joining
    from longca.results.record import LevelName

    suite, failing = resolve(args), failing_statuses(args.fail_on)
    if args.print_config:
        print(to_toml(suite), end="")
        return 0
    device = args.device or devices.kind()
    devices.require(device)
    if clock_settings(args).get("energy_s"):
        refuse_energy(device)
    if device == "cuda":
        keep_on_disk()
    launch = joining.launched() if suite.level is LevelName.CP else None
    level = _level(args, suite, device, speaks=launch is None or launch.rank == 0)
    if args.dry_run:
        return 0 if launch is not None and launch.rank else _dry_run(_plan(args, level), level)

    def measure() -> int:
        return _measure(args, level, _plan(args, level), failing)

    return measure() if launch is None else take_part(launch, device, suite.limits.start_s, measure)


def _level(args: argparse.Namespace, suite: Suite, device: str, speaks: bool) -> Level:
    """One device or many; of the ranks of a job all refuse, but only the first prints notes."""
    from longca.results.record import LevelName

    if suite.level is not LevelName.CP:
        from longca.bench.one_device.level import OneDevice

        return OneDevice(suite, device, args.plugin, only_named=args.kernels is not None)
    from longca.bench.many_devices.level import ManyDevices

    named = args.methods not in (None, "all")
    level = ManyDevices(suite, device, args.plugin, nproc=args.nproc, grid=args.grid, methods_named=named)
    for note in level.notes if speaks else []:
        print(f"note: {note}", file=sys.stderr)
    return level


def _plan(args: argparse.Namespace, level: Level) -> list[Planned]:
    from longca.bench.plan.jobs import shard
    from longca.bench.plan.workload import read_workload
    from longca.bench.run.campaign import plan_level

    planned = plan_level(level, read_workload(args.workload) if args.workload else [], dry=args.dry_run)
    if not args.shard:
        return planned
    mine = shard(planned, args.shard)
    if not mine:
        problems = plural(len({entry.cell.problem for entry in planned}), "problem")
        why = f"there is only {problems} (mask, length, shape, seed) to share, and none is split"
        print(f"shard {args.shard} holds no cell: {why}.", file=sys.stderr)
    return mine


def _dry_run(planned: list[Planned], level: Level) -> int:
    from longca.bench.plan.estimate import estimates_s, refuse_hopeless
    from longca.cli._tables import show_table
    from longca.text import format_duration, format_size

    split = any(entry.cell.split for entry in planned)
    columns = (*(("method", "ranks", "grid") if split else ()), "kernel", "mask", "length", "heads", "head size", "dtype", "pass", "seed")
    rows = []
    for cell in (entry.cell for entry in planned):
        names = (cell.split.method, cell.split.ranks, cell.split.grid) if cell.split else ()
        shape = (f"{cell.heads_q}:{cell.heads_kv}", cell.head_dim, cell.dtype, cell.pass_.value, cell.seed)
        rows.append((*names, cell.kernel, cell.mask_title, format_size(cell.seqlen), *shape))
    show_table(columns, rows)
    _list_left_out(level)
    try:
        refuse_hopeless(planned, level.suite.limits)
    except Refused as error:
        print(f"this run would be refused here: {error}", file=sys.stderr)
    print(f"{plural(len(planned), 'cell')}, about {format_duration(sum(estimates_s(planned, level.suite).values()))}")
    return 0


def _list_left_out(level: Level) -> None:
    by_reason: dict[str, list[str]] = {}
    for label, reason in level.catalogue.left_out.items():
        by_reason.setdefault(reason, []).append(label)
    for reason, labels in by_reason.items():
        print(f"left out: {', '.join(labels)} ({reason})", file=sys.stderr)


def _measure(args: argparse.Namespace, level: Level, planned: list[Planned], failing: Collection[Status]) -> int:
    from longca.bench.plan.cells import equal_masks
    from longca.bench.run.campaign import measure

    _list_left_out(level)
    for note in equal_masks(planned):
        print(f"note: {note}, and each is measured", file=sys.stderr)
    out = Path(args.out) if args.out else Path("out") / _default_name(args, level)
    retry = args.retry == "failed"
    finished = measure(level, planned, out, retry=retry, full=args.full, stop_after=args.stop_after)
    _summary(finished, out, level.catalogue.plugin_kernels)
    if finished.measured:
        print(where_the_time_went(finished.seconds, finished.by_phase))
    statuses = Counter(record.status for record in finished.results.records)
    if remark := faults(statuses, failing):
        print(remark)
    if finished.left:
        print(f"stopped with {plural(finished.left, 'cell')} left; to go on: {args.command_line}")
        return INTERRUPTED if finished.interrupted else MORE_TO_DO
    return 1 if any(statuses[status] for status in failing) else 0


def faults(statuses: Mapping[Status, int], failing: Collection[Status]) -> str:
    """One line on cells that failed: why the exit code is 1, or how to make it 1. Empty where nothing did."""
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


def _default_name(args: argparse.Namespace, level: Level) -> str:
    """The suite's name; without a suite the two levels get folders of their own."""
    return Path(args.suite).stem if args.suite else "run-cp" if level.suite.level == "cp" else "run"


def _summary(finished: Finished, out: Path, own_kernels: list[str]) -> None:
    """Prints what was fastest, how the user's own kernels stand, and what failed."""
    from longca.cli._tables import show_table
    from longca.report.terminal import summary_tables
    from longca.results.summary import counts

    for table in summary_tables(finished.results, own_kernels):
        print(f"\n{table.title}")
        show_table(table.columns, table.rows)
    records = finished.results.records
    print(f"\n{plural(len(records), 'cell')}: {counts(records)}; written to {out}/results.jsonl")


def where_the_time_went(all_s: float, by_phase: Mapping[str, float]) -> str:
    """One line, the largest part first; what no phase counts is mostly keeping the journal."""
    from longca.processes.lost import PHASES
    from longca.text import format_duration

    titles = PHASES | {"build": "building and compiling", "reference": "references"}
    parts = {titles.get(phase, phase): seconds for phase, seconds in by_phase.items()}
    parts["the rest"] = max(0.0, all_s - sum(by_phase.values()))
    shown = [f"{title} {seconds:.0f} s" for title, seconds in sorted(parts.items(), key=lambda part: -part[1]) if seconds >= 0.5]
    return f"it took {format_duration(all_s)}" + (f": {', '.join(shown)}" if shown else "")
