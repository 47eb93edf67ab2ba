"""The words of `longca plan` and `longca simulate`: tables, what makes a method the best, and how near predictions come to measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longca.bench.plan.cell import Cell
from longca.bench.plan.cells import mask_of
from longca.results.shown import Part
from longca.results.tables import Table, format_figure
from longca.simulate import validate
from longca.simulate.against import Pair, errors, measured_names
from longca.simulate.best import AS_LONG
from longca.simulate.calibrate import Fit
from longca.simulate.cluster import Cluster
from longca.simulate.predict import Prediction
from longca.simulate.table import Row
from longca.simulate.trust import trust
from longca.simulate.validate import Point, Published
from longca.text import format_memory, format_size, plural

if TYPE_CHECKING:
    from longca.simulate.run import Simulated

LITTLE = 0.02  # of the time: no reason
PLANNED = ["method", "grid", "GPUs", "mask", "tokens", "pass", "sent in node", "to others", "messages", "memory", "work", "imbalance"]
SIMULATED = ["method", "grid", "GPUs", "mask", "tokens", "pass", "ms", "TFLOP/s"]
SHARES = ["compute", "transfers", "others", "host", "hidden"]
LEGEND = (
    "compute: its share of the time (mean over ranks); transfers, others, host: shares of waiting for transfers, other ranks and the host. "
    "hidden: the share of transfers that overlaps with compute."
)
SAME_SPEED = "Attention has the cluster's speed with every kernel; --kernels changes memory, copies and what is refused."


def plan(rows: Sequence[Row], cells: Sequence[Cell]) -> list[Part]:
    """What methods send, hold and compute, how uneven plans share tokens, and what is refused."""
    shown, details, refused = list[list[str]](), dict[str, tuple[str, ...]](), dict[str, str]()
    for row in rows:
        grid = f"{row.grid} {row.options}".strip()
        case = f"{row.method} {grid} on {row.gpus} GPUs, {row.mask}:"
        if row.refusal:
            refused[case] = row.refusal
            continue
        if row.details:
            details[case] = row.details
        sent = (format_memory(row.inside_bytes), format_memory(row.between_bytes), str(row.messages), format_memory(row.peak_bytes))
        work = f"{row.pairs:.3g} pairs in {plural(row.attention_calls, 'call')}"
        shown.append([row.method, grid, str(row.gpus), row.mask, format_size(row.seqlen), row.pass_, *sent, work, f"{row.imbalance:.2f}"])
    parts: list[Part] = []
    if shown:
        note = "Each value is the largest of all GPUs. Memory is the peak of inputs, results, buffers, and declared fp32 sums."
        parts = [Table("", PLANNED, shown), "", note, *documents(cells)]
    parts += ["\n  ".join((case, *lines)) for case, lines in details.items()]
    return parts + [f"{case} {reason}" for case, reason in refused.items()]


def documents(cells: Sequence[Cell]) -> list[str]:
    """The number and the lengths of the documents of each mask that has some. They decide which method is the best."""
    sentences = []
    for cell in {(cell.problem.mask_title, cell.problem.seqlen): cell for cell in cells}.values():
        if own := mask_of(cell.problem).documents:
            lengths = f"{plural(len(own), 'document')} of {min(own)} to {max(own)} tokens"
            origin = "given" if cell.problem.documents else f"drawn with seed {cell.problem.seed}; --lengths gives your own"
            sentences.append(f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens: {lengths} ({origin}).")
    return sentences


def simulation(results: Sequence[Simulated], name: str, cluster: Cluster, kernel_named: bool = False) -> list[Part]:
    """Times and where they go, how near such predictions came to others, and what is refused."""
    rows, refused = list[list[str]](), dict[tuple[str, str], list[str]]()
    for result in results:
        cell, found = result.cell, result.prediction
        assert cell.split is not None
        problem, split = cell.problem, cell.split
        if found is None:
            where = f"on {problem.ranks} GPUs, {problem.mask_title}: {result.outcome.reason}"
            refused.setdefault((split.method, where), []).append(split.shape)
            continue
        names = [split.method, split.shape, str(problem.ranks), problem.mask_title, format_size(problem.seqlen), problem.pass_.value]
        shares = (found.compute_share, found.exposed_share, found.late_share, found.host_share, found.hidden_share)
        figures = [f"{found.ms:.4g}", format_figure(found.tflops), *(f"{share:.0%}" for share in shares)]
        rows.append([*names, *figures, format_memory(max(found.peaks))])
    parts: list[Part] = []
    if rows:
        cells = [result.cell for result in results if result.prediction is not None]
        shapes = {(cell.problem.heads_q, cell.problem.heads_kv, cell.problem.head_dim, cell.problem.head_dim_v) for cell in cells}
        origin = f"SIMULATED on {name} ({cluster.about}), not measured. {LEGEND}"
        parts = [
            Table("", [*SIMULATED, *SHARES, "memory"], rows),
            "",
            origin,
            trust(cluster, {cell.problem.mask for cell in cells}, shapes),
        ]
        parts += documents([result.cell for result in results])
    parts += [f"{method} {', '.join(dict.fromkeys(shapes))} {where}" for (method, where), shapes in refused.items()]
    return [*parts, SAME_SPEED] if rows and kernel_named else parts


def title(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.problem.mask_title}, {format_size(cell.problem.seqlen)} tokens on {cell.problem.ranks} GPUs, {cell.problem.pass_.value}"


def method_name(cell: Cell) -> str:
    assert cell.split is not None
    return f"{cell.split.method} {cell.split.shape}"


def contest(group: Sequence[Simulated]) -> str:
    """The best, and what makes the next method, and other grids of the best one, slower."""
    best = group[0]
    assert best.prediction is not None
    assert best.cell.split is not None
    figures = f"{format_figure(best.prediction.tflops)} TFLOP/s per GPU, {best.prediction.ms:.3g} ms"
    sentences = [f"{title(best.cell)}: use {method_name(best.cell)}, {figures}."]
    method = best.cell.split.method
    others = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method != method]
    same = [result for result in group[1:] if result.cell.split is not None and result.cell.split.method == method]
    for rival in others[:1] + same[:1]:
        assert rival.prediction is not None
        slower, name = rival.prediction.ms / best.prediction.ms - 1, method_name(rival.cell)
        if slower < AS_LONG:
            sentences.append(f"{name} takes as long.")
        else:
            sentences.append(f"{name} takes {slower:.0%} longer: {_difference(best.prediction, rival.prediction)}.")
    return " ".join(sentences)


def _difference(best: Prediction, rival: Prediction) -> str:
    """What the rival spends more and less time on, as shares of the best one's time; they add up to the difference."""
    parts = {
        "attention and copies": (best.compute_share, rival.compute_share),
        "waiting for transfers": (best.exposed_share, rival.exposed_share),
        "waiting for slower ranks": (best.late_share, rival.late_share),
        "waiting for the host": (best.host_share, rival.host_share),
    }
    changes = {what: other * rival.ms / best.ms - own for what, (own, other) in parts.items()}
    shown = [f"{what} {share:+.0%}" for what, share in sorted(changes.items(), key=lambda item: -item[1]) if abs(share) > LITTLE]
    return ", ".join(shown) or "a little of everything"


def published(name: str, cluster: Cluster, figures: Published, points: Sequence[Point]) -> list[Part]:
    """Published and predicted speeds, and the errors."""
    first, last, summary = figures.gpus[0], figures.gpus[-1], validate.summary(points, figures)
    head = f"Published, predicted and error, for {', '.join(map(str, figures.gpus))} GPUs, and of the ratio of the most to the fewest:"
    lines: dict[tuple[str, str, str], list[Point]] = {}
    for point in points:
        lines.setdefault((point.mask, point.pass_.value, point.method), []).append(point)
    columns = ["mask", "pass", "method", *(f"{gpus} GPUs" for gpus in figures.gpus), f"{last} over {first}"]
    rows = [
        [*names, *(f"{point.published:.0f} {point.predicted:.0f} {point.error:+.0%}" for point in line), _scaling(line[-1])]
        for names, line in lines.items()
    ]
    plain, documents = summary["plain"], summary["documents"]
    constants = ", ".join(f"{constant} {validate.constant(cluster, constant):g}" for constant in validate.CONSTANTS)
    sentences = [
        f"{what}: median error {figure['error']:.1%}; beyond {first} GPUs {figure['later_error']:.1%}, "
        f"where 'the same as at {first} GPUs' has {figure['same_as_first']:.1%}."
        for what, figure in (("full and causal", plain), ("documents", documents))
    ]
    scaling, within, total = (documents[name] for name in ("scaling_error", "scaling_within_25", "scaling_rows"))
    worst = sorted(documents["rank_correlation"].items(), key=lambda item: item[1])
    return [
        f"{figures.about}; {figures.source}.\n{head}\n",
        Table("", columns, rows),
        f"\nConstants of {name}: {constants}.",
        *sentences,
        f"full and causal: worst {plain['worst']:.0%}; documents: of the scaling from {first} GPUs {scaling:.1%}.",
        f"documents: the ratio of 64 to 8 GPUs is within 25 % in {within} of {total} rows.",
        f"documents: rank correlation of methods, lowest first: {', '.join(f'{what} {value:.2f}' for what, value in worst)}.",
        "\nDeviations over 20 %, and what may explain them:",
        *(f"* {method}: {reason}" for method, reason in validate.explanations(points, figures).items()),
    ]


def _scaling(last: Point) -> str:
    published, predicted = last.published / last.at_first, last.predicted / last.predicted_at_first
    return f"{published:.2f} {predicted:.2f} {last.scaling_error:+.0%}"


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
        parts.append(f"{count} ranks: {len(own)} records, {_errors(own)}.")
    return [*parts, f"{len(pairs)} records against {name}: {_errors(pairs)}."]


def fit(found: Fit) -> str:
    return f"{found.name} = {found.value:g} from {found.measurements} measurements, median error {found.error:.1%}"


def _errors(pairs: Sequence[Pair]) -> str:
    typical, most = errors(pairs)
    return f"median error {typical:.1%}, nine in ten within {most:.1%}"
