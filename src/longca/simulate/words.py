"""The words of `longca plan` and `longca simulate`: the answer, tables, and how near predictions come to measurements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.results.grouping import grouped
from longca.results.shown import Part
from longca.results.tables import Table, format_figure
from longca.simulate.against import Pair, measured_names
from longca.simulate.cluster import DENSE, DOCUMENTS, Cluster
from longca.simulate.contest import AS_LONG, Contest, Entry
from longca.simulate.errors import ledger_of, spread_of, usual
from longca.simulate.fit import Fit
from longca.simulate.published import Point, Published
from longca.simulate.request import Request
from longca.simulate.sensitivity import Sensitivity
from longca.simulate.table import Row
from longca.text import format_memory, format_size, plural

if TYPE_CHECKING:
    from longca.simulate.answers import Simulation

SHOWN = 10  # rows of the best
PLANNED = ["method", "grid", "GPUs", "mask", "tokens", "pass", "sent in node", "to others", "messages", "memory", "work", "imbalance"]
SIMULATED = ["method", "grid", "GPUs", "mask", "tokens", "pass", "ms", "range", "TFLOP/s"]
SHARES = ["compute", "transfers", "others", "host", "hidden"]
LEGEND = (
    "ms: the mean over packs, of attention alone; memory: of one attention call. compute: its share of the time (mean over ranks); "
    "transfers, others, host: shares of waiting for transfers, "
    "other ranks and the host. hidden: the share of transfers that overlaps with compute."
)
SAME_SPEED = "Attention has the cluster's speed with every kernel; --kernels changes memory, copies and what is refused."


def plan(rows: Sequence[Row], splits: Request) -> list[Part]:
    """What methods send, hold and compute, how uneven plans share tokens, and what is refused."""
    shown, details, refused = list[list[str]](), dict[str, tuple[str, ...]](), dict[str, str]()
    for row in rows:
        case = f"{row.method} {row.setting} on {row.gpus} GPUs, {row.mask}:"
        if row.refusal:
            refused[case] = row.refusal
            continue
        if row.details:
            details[case] = row.details
        sent = (format_memory(row.inside_bytes), format_memory(row.between_bytes), str(row.messages), format_memory(row.peak_bytes))
        work = f"{row.pairs:.3g} pairs in {plural(row.attention_calls, 'call')}"
        shown.append(
            [row.method, row.setting, str(row.gpus), row.mask, format_size(row.seqlen), row.pass_, *sent, work, f"{row.imbalance:.2f}"]
        )
    parts: list[Part] = []
    if shown:
        note = "Each value is the largest of all GPUs, of one attention call. Memory is the peak of inputs, results, buffers, and declared "
        note += "fp32 sums; weights, activations and other layers come on top."
        parts = [Table("", PLANNED, shown), ""]
        if splits.layers:
            parts += [Table(layers_text(splits.layers), PLANNED[:-2], model_rows(rows, splits.layers)), ""]
        parts += [note, *documents(splits.cells())]
    parts += ["\n  ".join((case, *lines)) for case, lines in details.items()]
    return parts + [f"{case} {reason}" for case, reason in refused.items()]


def model_rows(rows: Sequence[Row], layers: Mapping[str, int]) -> list[list[str]]:
    """What all layers of a model send together, and the most memory of one of them."""

    def kind(row: Row) -> tuple[str, ...]:
        of_all = f"all {sum(layers.values())} layers"
        return row.method, row.setting, str(row.gpus), of_all, format_size(row.seqlen), row.pass_, str(row.seed)

    shown = []
    for (*names, _), own in grouped((row for row in rows if not row.refusal), kind).items():
        if len(own) == len(layers):
            weighted = list(zip(own, layers.values(), strict=True))
            inside, between = (sum(count * getattr(row, name) for row, count in weighted) for name in ("inside_bytes", "between_bytes"))
            messages, peak = sum(count * row.messages for row, count in weighted), max(row.peak_bytes for row in own)
            shown.append([*names, format_memory(inside), format_memory(between), str(messages), format_memory(peak)])
    return shown


def layers_text(layers: Mapping[str, int]) -> str:
    """The layers of a model by mask."""
    return ", ".join(f"{plural(count, 'layer')} {mask}" for mask, count in layers.items())


def documents(cells: Sequence[Cell]) -> list[str]:
    """The number and the lengths of the documents of each mask that has some. They decide which method is the best."""
    sentences = []
    for (mask, seqlen), own in grouped(cells, lambda cell: (cell.problem.mask_title, cell.problem.seqlen)).items():
        packs = dict.fromkeys(cell.problem.every_pass for cell in own)
        drawn = {problem.seed: lengths for problem in packs if (lengths := mask_of(problem).documents)}
        if not drawn:
            continue
        counts, every = [len(lengths) for lengths in drawn.values()], [length for lengths in drawn.values() for length in lengths]
        number = plural(counts[0], "document") if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)} documents"
        given = own[0].problem.documents is not None
        seeds = f"seed {next(iter(drawn))}" if len(drawn) == 1 else f"{len(drawn)} seeds, {min(drawn)} to {max(drawn)}"
        origin = "given" if given else f"drawn with {seeds}; --lengths gives your own"
        sentences.append(f"{mask}, {format_size(seqlen)} tokens: {number} of {min(every)} to {max(every)} tokens ({origin}).")
    return sentences


BOUNDS = {
    "compute_share": "compute",
    "exposed_share": "transfers that nothing hides",
    "late_share": "imbalance: ranks wait for slower ones",
    "host_share": "the host, which issues operations",
}


def simulation(found: Simulation) -> list[Part]:
    """The answers, then times and where they go, how near such predictions came to measurements, and what is refused."""
    contests, parts = found.contests, list[Part]()
    for place, contest in enumerate(contests if found.with_best else []):
        parts += [*answer(found, contest, found.sensitivities.get(place)), ""]
    if found.splits.total is not None and contests:
        parts += [shares_of_gpus(found, found.splits.total), ""]
    rows = [row for contest in contests for row in _rows(found, contest)]
    if rows:
        parts += [Table("", [*SIMULATED, *SHARES, "memory"], rows), ""]
        parts += [_skipped(contest) for contest in contests if len(contest.simulated) < len(contest.entries)]
        parts.append(f"SIMULATED on {found.name} ({found.cluster.about}), not measured. {LEGEND}")
        if found.splits.layers:
            parts.append("Each kind of layer has the tokens that suit its own mask; a plan for both shares one partition.")
        parts += [] if found.with_best else dict.fromkeys(line for contest in contests for line in trust(found, contest))
        parts += documents([result.cell for result in found.results])
    refused: dict[tuple[str, str], list[str]] = {}
    for result in found.results:
        problem, split = result.cell.problem, result.cell.split
        if split is not None and result.prediction is None and result.least_ms is None:
            where = f"on {plural(problem.ranks, 'GPU')}, {problem.mask_title}: {result.outcome.reason}"
            refused.setdefault((split.method, where), []).append(split.shape)
    parts += [f"{method} {', '.join(dict.fromkeys(shapes))} {where}" for (method, where), shapes in refused.items()]
    return [*parts, SAME_SPEED] if rows and found.kernel_named else parts


def shares_of_gpus(found: Simulation, total: int) -> Table:
    """The best method for every number of GPUs that share a sequence, and how many tokens all GPUs together attend to in a second."""
    tensor, rows = found.splits.tensor, list[list[str]]()
    for contest in sorted(found.contests, key=lambda contest: (contest.problem.pass_, contest.problem.ranks)):
        problem, best = contest.problem, contest.best
        groups, ms = total // (problem.ranks * tensor), best.total_ms / contest.packs
        gpus = f"CP {problem.ranks} x DP {groups}" + (f" x TP {tensor}" if tensor > 1 else "")
        speed = f"{1e3 * groups * problem.seqlen / ms:.3g}"
        rows.append([gpus, short_name(found, contest), problem.pass_.value, best.name, f"{ms:.4g}", speed, format_memory(best.peak_bytes)])
    columns = ["GPUs", "mask", "pass", "method", "ms", "tokens/s of all GPUs", "memory"]
    return Table(f"{total} GPUs: attention alone; memory is that of one attention call", columns, rows)


def name_of(found: Simulation, contest: Contest) -> str:
    """The mask of a question, the layers of its model, or its workload."""
    return found.workload or layers_text(found.splits.layers) or contest.problem.mask_title


def short_name(found: Simulation, contest: Contest) -> str:
    layers = found.splits.layers
    return f"all {sum(layers.values())} layers" if layers else name_of(found, contest)


def _rows(found: Simulation, contest: Contest) -> list[list[str]]:
    """The fastest entries, or all of them."""
    rows, problem = list[list[str]](), contest.problem
    for entry in contest.simulated[: SHOWN if found.with_best else None]:
        split, seqlens = entry.split, {result.cell.problem.seqlen for result in entry.results}
        tokens = " to ".join(format_size(length) for length in sorted({min(seqlens), max(seqlens)}))
        names = [split.method, split.shape, str(problem.ranks), short_name(found, contest), tokens, problem.pass_.value]
        spread = f"{format_figure(min(entry.times))} to {format_figure(max(entry.times))}" if contest.packs > 1 else ""
        shares = (entry.share(name) for name in (*BOUNDS, "hidden_share"))
        figures = [f"{entry.total_ms / contest.packs:.4g}", spread, format_figure(entry.tflops), *(f"{share:.0%}" for share in shares)]
        rows.append([*names, *figures, format_memory(entry.peak_bytes)])
    return rows


def _skipped(contest: Contest) -> str:
    """How many were not simulated, and why that is no loss."""
    rest = [entry for entry in contest.entries if not entry.is_simulated]
    least = min(entry.total_ms for entry in rest) / contest.packs
    return (
        f"{len(rest)} of {len(contest.entries)} settings were not simulated in every pack: compute, host and bytes of one rank alone take "
        f"{least:.4g} ms or more, and {contest.best.name} takes {contest.best.total_ms / contest.packs:.4g} ms in all."
    )


def title(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens on {cell.problem.ranks} GPUs, {cell.problem.pass_.value}"


def method_name(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.split.method} {cell.split.shape}"


def answer(found: Simulation, contest: Contest, hangs_on: Sensitivity | None) -> list[str]:
    """What to use, what is as good, how sure that is, what bounds it, and what would change it: a line each."""
    best, packs = contest.best, contest.packs
    size = plural(packs, "pack") if found.workload else f"{format_size(contest.problem.seqlen)} tokens"
    what = f"{name_of(found, contest)}, {size} on {plural(contest.problem.ranks, 'GPU')}, {contest.problem.pass_.value}"
    mean = best.total_ms / packs
    ends = f" (mean of {packs} packs, {format_figure(min(best.times))} to {format_figure(max(best.times))})" if packs > 1 else ""
    lines = [f"{what}: use {best.name}, {mean:.3g} ms{ends}, {format_figure(best.tflops)} TFLOP/s per GPU."]
    if packs > 1:
        wins = ", ".join(f"{method} {number}" for method, number in contest.wins.items())
        longest = max(best.times) / best.total_ms
        lines.append(f"fastest in packs: {wins}; by total time over {packs} packs, of which the longest is {longest:.0%}.")
    equals = found.equals(contest)
    rivals = [_rival(contest, entry, entry.name in equals) for entry in contest.by_method if entry is not best][:3]
    lines += [f"next: {'; '.join(rivals)}."] if rivals else []
    lines += trust(found, contest)
    lines.append(bounds(best, hangs_on))
    return [*lines, changes(hangs_on)] if hangs_on and hangs_on.rivals else lines


def _rival(contest: Contest, entry: Entry, equal: bool) -> str:
    slower = contest.longer(entry)
    if not entry.is_simulated:
        return f"{entry.split.method} {slower:+.0%} or more"
    if slower < AS_LONG:
        return f"{entry.name} takes as long"
    low, high = contest.longer_over_packs(entry) if contest.packs > 1 else (slower, slower)
    over = f" ({low:+.0%} to {high:+.0%} over packs)" if contest.packs > 1 else ""
    return f"{entry.name} {slower:+.0%}{over}{', equal within the error' if equal else ''}"


def trust(found: Simulation, contest: Contest) -> list[str]:
    """How far predictions were off, for each method; which methods and settings were never compared."""
    own, cluster = found.trust(contest), found.cluster
    if not found.with_best:  # by name, so that both passes give one sentence
        own = dict(sorted(own.items()))
    ledger, kind = ledger_of(found.name, cluster), next(iter(own.values())).kind
    expected = usual(found.name, cluster, kind)
    if ledger is None:
        elsewhere = f"on other clusters times on {kind} were within {expected} of predictions"
        why = cluster.compared or "Predictions for this cluster, with these constants, were compared with no measurement"
        return [f"{why.rstrip('.')}; {elsewhere}."]
    compared = [one for one in own.values() if one.spread is not None]
    never = [one.method for one in own.values() if one.spread is None]
    shown = compared[:3] if found.with_best else compared
    lines = [f"error on {kind} ({ledger.source}): {'; '.join(map(str, shown))}."] if shown else []
    if never:
        lines.append(f"never compared on {kind}: {', '.join(never)}; other methods were within {expected}.")
    return lines


def bounds(best: Entry, hangs_on: Sensitivity | None) -> str:
    """What takes most of the time, and what twice as good a machine would save."""
    shares = {words: best.share(name) for name, words in BOUNDS.items()}
    most = max(shares, key=lambda words: shares[words])
    line = f"bound by {most} ({shares[most]:.0%} of the time)"
    if hangs_on is None:
        return f"{line}."
    gains = {f"{'half the ' if name == 'host time' else 'twice the speed of '}{name}": gain for name, gain in hangs_on.gains.items()}
    gains["perfect balance"] = best.share("late_share")
    ordered = sorted(gains.items(), key=lambda item: -item[1])
    return f"{line}; what would help most: {', '.join(f'{what} {max(gain, 0.0):.0%}' for what, gain in ordered[:3])}."


def changes(hangs_on: Sensitivity) -> str:
    """Which constant changes the winner."""
    rivals = " or ".join(entry.split.method for entry in hangs_on.rivals)
    if not hangs_on.changes:
        return f"no constant (host time, links, compute) changed between half and twice its value makes {rivals} faster."
    texts = [f"{change.name} x{change.factor:.2g} ({change.value:.3g}) makes it {change.winner.name}" for change in hangs_on.changes]
    return f"the winner changes: {'; '.join(texts)}."


def published(name: str, cluster: Cluster, figures: Published, points: Sequence[Point]) -> list[Part]:
    """Published and predicted speeds, and the errors by kind of mask and by method."""
    first, last = figures.gpus[0], figures.gpus[-1]
    lines = grouped(points, lambda point: (point.figure.mask, point.figure.pass_.value, point.figure.method))
    columns = ["mask", "pass", "method", *(f"{gpus} GPUs" for gpus in figures.gpus), f"{last} over {first}"]
    rows = []
    for names, line in sorted(lines.items()):
        ordered = sorted(line, key=lambda point: point.figure.gpus)
        cells = (f"{point.published:.0f} {point.predicted:.0f} {point.error:+.0%}" for point in ordered)
        rows.append([*names, *cells, f"{ordered[-1].scaling_error:+.0%}"])
    parts: list[Part] = [
        f"Published and predicted TFLOP/s per GPU and error, {format_size(figures.tokens_per_gpu)} tokens per GPU, on {name}; "
        f"and the error of the ratio of {last} to {first} GPUs:\n",
        Table("", columns, rows),
        "",
    ]
    for kind, masks in (("full and causal", DENSE), ("documents", DOCUMENTS)):
        own = [point for point in points if point.figure.mask in masks]
        later = [point for point in own if point.figure.gpus != first]
        beyond = f"beyond {first} GPUs {_errors(point.error for point in later)}, of the scaling {_errors(p.scaling_error for p in later)}"
        flat = f"'the same as at {first} GPUs' has {_errors(point.flat_error for point in later)}"
        parts.append(f"{kind}: {_errors(point.error for point in own)}; {beyond}, where {flat}.")
        for method in figures.methods:
            errors_of = [point.error for point in own if point.figure.method == method]
            parts.append(f"  {method}: {_errors(errors_of)}, from {min(errors_of):+.0%} to {max(errors_of):+.0%}")
    return parts


def against(pairs: Sequence[Pair], name: str, rows: bool = True) -> list[Part]:
    """The errors against measured records: of each where `rows` are wanted, of each number of ranks, and of all."""
    parts: list[Part] = []
    if rows:
        columns = ["method", "grid", "ranks", "mask", "tokens", "pass", "measured ms", "simulated ms", "error"]
        figures = ([f"{pair.record.times.median:.4g}", f"{pair.ms:.4g}", f"{pair.error:+.0%}"] for pair in pairs)
        cells = [[*map(str, measured_names(pair.record).values()), *own] for pair, own in zip(pairs, figures, strict=True)]
        parts.append(Table("", columns, cells))
    parts.append("")
    counts = sorted({pair.record.problem.ranks for pair in pairs})
    for count in counts if len(counts) > 1 else []:
        own = [pair for pair in pairs if pair.record.problem.ranks == count]
        parts.append(f"{count} ranks: {len(own)} records, {_errors(pair.error for pair in own)}.")
    for method in dict.fromkeys(pair.record.method for pair in pairs):
        own = [pair for pair in pairs if pair.record.method == method]
        parts.append(f"{method}: {len(own)} records, {_errors(pair.error for pair in own)}.")
    return [*parts, f"{len(pairs)} records against {name}: {_errors(pair.error for pair in pairs)}."]


def fit(found: Fit) -> str:
    return f"{found.name} = {found.value:g} from {found.measurements} measurements, median error {found.error:.1%}"


def _errors(signed: Iterable[float]) -> str:
    spread = spread_of(signed)
    return f"median error {spread.median:.1%}, nine in ten within {spread.most:.1%}"
