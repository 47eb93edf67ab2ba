"""The kinds of figures: speed, block patterns beside the dense mask, scaling over ranks, and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from longca.report.figures.lines import (
    LENGTH,
    MASKS,
    RANKS,
    RATIO,
    Over,
    choose,
    draw_lines,
    layout_over,
    over_ratio,
    same_note,
)
from longca.report.figures.sheet import Drawing, same_scale, sheet, without
from longca.report.figures.style import level
from longca.results.grouping import dense_lines, grouped, timed_lines
from longca.results.naming import Row
from longca.results.points import MEMORY, TIME, Measure, point, speed_of
from longca.results.statuses import LETTERS_EXPLAINED
from longca.text import format_size

MOST_DENSE = 3  # level lines: those that block patterns find it hardest to beat
FEW, TALL = 6, 2.5  # of more lines than these, the best can be told apart in a panel of so many inches
ALL = "the most of any mask"
OF_MEASURED = "A point is of the masks measured there: a line may bend where a kernel has no time on some mask."


def speed(drawing: Drawing) -> Any:
    """A panel for each mask over its lengths or its share of visible blocks, or one with all masks side by side; over ranks there is a
    figure of its own."""
    over, own = choose(drawing.rows)
    if over is MASKS and len({row.record.problem.ranks for row in own}) > 1:
        return None
    return _charts(drawing, grouped(own, over.panel), over, speed_of(drawing.rows))


def ratio(drawing: Drawing) -> Any:
    """Milliseconds: where the line of a kernel on blocks lies below that of the dense mask, blocks are worth it."""
    return _charts(drawing, grouped(over_ratio(drawing.rows), RATIO.panel), RATIO, TIME)


def scaling(drawing: Drawing) -> Any:
    """Up to two panels for each mask: the longest of the lengths, and of the lengths per rank, that most numbers of ranks have."""
    panels: dict[str, list[Row]] = {}
    for family, group in grouped([row for row in drawing.rows if row.record.method], lambda row: row.family).items():
        for size, words in ((_in_all, "tokens"), (_on_each, "tokens per rank")):
            chosen = _most_ranks(group, size)
            if chosen:
                panels[f"{family}, {format_size(round(size(chosen[0])))} {words}"] = chosen
    measure = speed_of(drawing.rows)
    return _charts(drawing, panels, RANKS, measure._replace(label=f"{measure.label} per rank"))


def _in_all(row: Row) -> float:
    return row.record.problem.seqlen


def _on_each(row: Row) -> float:
    return row.record.problem.seqlen / row.record.problem.ranks


def _most_ranks(rows: Sequence[Row], size: Callable[[Row], float]) -> list[Row]:
    ranks = {tokens: len({row.record.problem.ranks for row in group}) for tokens, group in grouped(rows, size).items()}
    best = max(ranks, key=lambda tokens: (ranks[tokens], tokens))
    return [row for row in rows if size(row) == best] if ranks[best] > 1 else []


def memory(drawing: Drawing) -> Any:
    """A panel for each block pattern, as the size of its blocks matters, and one for all masks made of bands."""
    over, own = choose([row for row in drawing.rows if row.record.ok and row.record.peak_gib])
    panels = grouped(own, lambda row: _panel(row) if over is LENGTH else over.panel(row))
    return _charts(drawing, panels, over, MEMORY, OF_MEASURED if over is LENGTH else "")


def _panel(row: Row) -> str:
    if row.is_pattern:
        return row.panel
    return f"{ALL} ×{row.record.problem.ranks}" if row.record.method else ALL


def _charts(drawing: Drawing, panels: Mapping[str, list[Row]], over: Over, measure: Measure, note: str = "") -> Any:
    """The panels, with the dense mask as level lines where they are over the share of visible blocks. None where nothing
    has a value."""
    from matplotlib.lines import Line2D

    rows = [row for own in panels.values() for row in own]
    shown = timed_lines(rows, over.series)
    if not shown:
        return None
    dense = {name: _levels(own, drawing.everything, measure) if over is RATIO else {} for name, own in panels.items()}
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    levels = dict.fromkeys(name for values in dense.values() for name in values)  # the fastest first
    looks = {name: level(number) for number, name in enumerate(levels)}
    legend += [(name, Line2D([], [], **look)) for name, look in looks.items()]
    letters = any(over.series(row) in shown and not row.record.ok for row in rows)
    missing = [row for row in drawing.rows if over.series(row) not in shown]
    notes = [note, LETTERS_EXPLAINED if letters else "", same_note(rows), without(missing)]
    layout = layout_over(over, list(grouped(rows, MASKS.place)))._replace(height=TALL if len(shown) > FEW else 1.75)
    figure = sheet(drawing, list(panels), (over.name, measure.label), legend, notes, layout)
    for axes, (name, own) in zip(figure.axes, panels.items(), strict=True):
        for mask, value in dense[name].items():
            axes.axhline(value, **looks[mask])
        draw_lines(axes, own, over, measure, shown, drawing.styles)
    if over is RATIO or measure.log:
        same_scale(figure.axes)
    return figure


def _levels(rows: Sequence[Row], everything: Sequence[Row], measure: Measure) -> dict[str, float]:
    """The value of the fastest kernels on the dense mask, by what that is called."""
    lines = dense_lines(rows, everything, MOST_DENSE)
    return {f"{name} (dense)": found.value for name, own in lines.items() if (found := point(own, measure))}
