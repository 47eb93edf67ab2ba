"""`longca simulate`: how long context parallel methods take on a cluster, from their recorded programs and a model of the cluster."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longca.cli._split_request import add_request_arguments, request_of, show_documents
from longca.cli._tables import show_table, write_over
from longca.errors import BadInput, Refused
from longca.text import format_memory, format_size, parse_list, parse_number

if TYPE_CHECKING:
    from longca.simulate.cluster import Cluster
    from longca.simulate.request import Request
    from longca.simulate.run import Simulated

HELP = "predict how long methods take on 8 to a thousand GPUs, from their recorded programs and a model of the cluster"
COLUMNS = (
    "method",
    "grid",
    "GPUs",
    "mask",
    "tokens",
    "pass",
    "ms",
    "TFLOP/s",
    "compute",
    "transfers",
    "others",
    "host",
    "hidden",
    "memory",
)
LEGEND = (
    "compute: its share of the time (mean over ranks); transfers, others, host: shares of waiting for transfers, other ranks and the host. "
    "hidden: the share of transfers that overlaps with compute."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cluster", default="h100-ib", metavar="NAME|FILE", help="a cluster of LongCA, such as h100-ib, or your own TOML file"
    )
    add_request_arguments(parser)
    parser.add_argument(
        "--constant", action="append", default=[], metavar="NAME=V", help="change a constant, such as between.gb_s=100; repeatable"
    )
    parser.add_argument("--best", action="store_true", help="try all grids, windows and stages, and show which is best and why")
    parser.add_argument("--out", metavar="DIR", help="add records to the journal in DIR, for report, compare and recommend --cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON object per result, with --validate one for all")
    parser.add_argument("--trace", metavar="FILE", help="write the timelines of ranks for Perfetto (ui.perfetto.dev); one method and pass")
    parser.add_argument("--timeline", metavar="FILE.png", help="draw the timelines of ranks; one method and pass")
    parser.add_argument("--ranks", metavar="A,B", help="the ranks of --trace and --timeline (default: the first 8)")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="compare with published results of H100 clusters and with gloo records, and print the errors",
    )
    parser.add_argument(
        "--measure", action="store_true", help="with --validate: measure gloo ranks on this machine into --out (out/gloo), and compare"
    )
    parser.add_argument("--against", metavar="DIR", help="compare with measured records of the level cp, and print the errors")


def run(args: argparse.Namespace) -> int:
    from longca.simulate import cluster as clusters

    _refuse_idle(args)
    name, cluster = clusters.find(args.cluster)
    cluster = clusters.changed(cluster, _constants(args.constant))
    if args.validate:
        from longca.cli._validation import show_all, show_measured

        if args.measure:
            return show_measured(Path(args.out or "out/gloo"), as_json=args.json)
        return show_all(name, cluster, as_json=args.json)
    if args.against:
        from longca.cli._validation import show_against

        return show_against(Path(args.against), name, cluster, as_json=args.json)
    return _simulate(args, name, cluster)


def _refuse_idle(args: argparse.Namespace) -> None:
    """Refuses flags that would do nothing beside the others."""
    if args.measure and not args.validate:
        raise BadInput("--measure is for --validate; write `longca simulate --validate --measure`.")
    if args.ranks and not (args.trace or args.timeline):
        raise BadInput("--ranks are those of --trace and --timeline; give one of these too.")
    if args.validate:
        mode, used = ("--validate --measure", {"out", "json"}) if args.measure else ("--validate", {"cluster", "constant", "json"})
    elif args.against:
        mode, used = "--against", {"cluster", "constant", "json", "against"}
    else:
        return
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for action in parser._actions:
        if action.dest in ("help", "validate", "measure") or action.dest in used:
            continue
        if getattr(args, action.dest) != action.default:
            flag = max(action.option_strings, key=len)
            allowed = ", ".join(f"--{name}" for name in sorted(used) if f"--{name}" != mode)
            raise BadInput(f"{flag} does nothing beside {mode}, which takes {allowed}; leave it out.")


def _constants(entries: list[str]) -> dict[str, float]:
    """Returns settings whose names have dots."""
    settings = {}
    for entry in (part for text in entries for part in parse_list(text)):
        name, _, value = (part.strip() for part in entry.partition("="))
        if not (name and value):
            raise BadInput(f"{entry!r} gives no constant a value; write a constant such as between.gb_s=100.")
        settings[name] = float(parse_number(value))
    return settings


def _simulate(args: argparse.Namespace, name: str, cluster: Cluster) -> int:
    from longca.simulate import best, run

    request = request_of(args, cluster.per_node, "cpu" if cluster.cores else "cuda", all_grids=args.best, all_options=args.best)
    watched = _watched(args, request)
    results, total = [], len(request.cells())
    for result in run.simulate(request, cluster, watched):
        results.append(result)
        write_over(f"{len(results)} of {total} cells are simulated" if len(results) < total else "")
        if args.json:
            print(json.dumps(_as_dict(result, name, cluster)), flush=True)
    answered = any(result.prediction is not None for result in results)
    if not args.json:
        _show(results, name, cluster)
        if args.kernels and answered:
            print("Attention has the cluster's speed with every kernel; --kernels changes memory, copies and what is refused.")
        if args.best:
            print("\n" + "\n".join(best.explain(group) for group in best.contests(results)))
    if args.trace or args.timeline:
        _write_timelines(args, results[0], watched)
    if args.out:
        records = run.write(request, name, cluster, results, Path(args.out))
        print(f"{len(records)} simulated records are in {args.out}.", file=sys.stderr)
    return 0 if answered else Refused.exit_code


def _as_dict(result: Simulated, name: str, cluster: Cluster) -> dict[str, Any]:
    cell, found = result.cell, result.prediction
    assert cell.split is not None
    split = {"method": cell.split.method, "grid": cell.split.grid, "options": cell.split.options, "gpus": cell.problem.ranks}
    base = {
        "cluster": name,
        **split,
        "mask": cell.problem.mask_title,
        "seqlen": cell.problem.seqlen,
        "pass": cell.problem.pass_.value,
        "status": result.outcome.status.value,
    }
    if found is None:
        return {**base, "reason": result.outcome.reason}
    fields = ("ms", "mean_ms", "tflops", "compute_share", "exposed_share", "late_share", "host_share", "hidden_share", "imbalance")
    numbers = {field: getattr(found, field) for field in fields}
    return {
        **base,
        **numbers,
        "error": cluster.error_of(cell.problem.mask) or None,
        "peak_bytes": max(found.peaks),
        "sent_bytes": max(found.sent_bytes),
    }


def _show(results: list[Simulated], name: str, cluster: Cluster) -> None:
    from longca.results.tables import format_figure
    from longca.simulate.trust import trust

    rows, refused = [], dict[tuple[str, str], list[str]]()
    for result in results:
        cell, found = result.cell, result.prediction
        assert cell.split is not None
        names = (
            cell.split.method,
            cell.split.shape,
            cell.problem.ranks,
            cell.problem.mask_title,
            format_size(cell.problem.seqlen),
            cell.problem.pass_.value,
        )
        if found is None:
            where = f"on {cell.problem.ranks} GPUs, {cell.problem.mask_title}: {result.outcome.reason}"
            refused.setdefault((cell.split.method, where), []).append(cell.split.shape)
            continue
        shares = (found.compute_share, found.exposed_share, found.late_share, found.host_share, found.hidden_share)
        figures = (f"{found.ms:.4g}", format_figure(found.tflops), *(f"{share:.0%}" for share in shares), format_memory(max(found.peaks)))
        rows.append((*names, *figures))
    if rows:
        show_table(COLUMNS, rows)
        print(f"\nSIMULATED on {name} ({cluster.about}), not measured. {LEGEND}")
        cells = [result.cell for result in results if result.prediction is not None]
        heads_and_sizes = {(cell.problem.heads_q, cell.problem.heads_kv, cell.problem.head_dim, cell.problem.head_dim_v) for cell in cells}
        print(trust(cluster, {cell.problem.mask for cell in cells}, heads_and_sizes))
        show_documents([result.cell for result in results])
    for (method, where), shapes in refused.items():
        print(method, ", ".join(dict.fromkeys(shapes)), where)


def _watched(args: argparse.Namespace, request: Request) -> list[int]:
    """The ranks whose timelines are wanted. Refuses requests for more than one timeline before anything is simulated."""
    if not (args.trace or args.timeline):
        return []
    cells = request.cells()
    if len(cells) != 1:
        tried = "of which --best makes several; " if args.best else ""
        raise BadInput(
            f"a timeline is of one method, grid, mask, length and pass, {tried}and there are {len(cells)}: "
            "name one with --gpus, --methods, --masks and --passes."
        )
    entries = parse_list(args.ranks or ",".join(map(str, range(min(8, request.gpus[0])))))
    if not all(entry.isdecimal() and int(entry) < request.gpus[0] for entry in entries):
        raise BadInput(f"--ranks must be numbers of ranks from 0 to {request.gpus[0] - 1}, such as 0,1, not {args.ranks}.")
    return list(map(int, entries))


def _write_timelines(args: argparse.Namespace, result: Simulated, watched: list[int]) -> None:
    from longca.simulate import best, timeline

    found, cell = result.prediction, result.cell
    if found is None:
        raise BadInput(f"there is no timeline: {result.outcome.reason}")
    times = timeline.of_ranks(found.ranks, watched)
    title = f"{best.name(cell)} on {args.cluster} (simulated): {best.title(cell)}"
    if args.trace:
        timeline.write_trace(times, title, Path(args.trace))
    if args.timeline:
        timeline.draw(times, title, Path(args.timeline))
