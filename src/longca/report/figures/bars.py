"""Grouped bars: masks side by side, each at its own longest length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import broken, ends_of
from longca.report.figures.sheet import LEFT, LETTER, RIGHT, WIDTH, Drawing, Layout, sheet, without
from longca.report.figures.style import Styles, plain
from longca.results.naming import Row
from longca.results.points import Measure, at_longest, grouped, speed_of, timed_lines
from longca.results.statuses import why
from longca.text import format_size

WIDEST = 0.45  # inches that a bar may take
MOST_BARS = 64  # side by side, so that a word fits into the place of one


def at_the_longest(drawing: Drawing) -> Any:
    """A bar per kernel, and a word where there is none."""
    from matplotlib.patches import Patch

    own = at_longest(drawing.rows, lambda row: row.panel)
    shown = timed_lines(own)
    if not shown:
        return None
    masks = list(grouped(own, lambda row: row.panel).items())
    lines = -(-len(masks) * (len(shown) + 1) // MOST_BARS)
    beside = -(-len(masks) // lines)
    parts = [masks[start : start + beside] for start in range(0, len(masks), beside)]
    legend = [(line, Patch(**drawing.styles.bar(line))) for line in shown]
    width = WIDTH if lines > 1 else max(4.5, min(WIDTH, 1.2 + 0.2 * beside * (len(shown) + 1)))
    labels = [_label(name, rows, int((width - 1) / LETTER / beside)) for name, rows in masks]
    layout = Layout(columns=1, height=1.5, below=0.48 + 0.14 * max(label.count("\n") + 1 for label in labels), width=width)
    speed = speed_of(drawing.rows)
    names = "", f"{speed.label} at the longest length"
    figure = sheet(drawing, [""] * len(parts), names, legend, [_same(own), without(own, shown)], layout)
    top, slot = 0.0, min(0.88 / len(shown), WIDEST * beside / (width - LEFT - RIGHT))
    for number, (axes, part) in enumerate(zip(figure.axes, parts, strict=True)):
        for place, (_, rows) in enumerate(part):
            _group(axes, place, rows, shown, slot, drawing.styles, speed)
        axes.set_xticks(range(len(part)), labels[number * beside : number * beside + len(part)])
        axes.set_xlim(-0.55, beside - 0.45)  # bars are as wide in the last row
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        top = max(top, axes.get_ylim()[1])
    for axes in figure.axes:
        axes.set_ylim(0, top)
    return figure


def _label(mask: str, rows: Sequence[Row], letters: int) -> str:
    star = "*" if any(row.same for row in rows) else ""
    return broken(f"{mask}, {format_size(rows[0].record.problem.seqlen)}{star}", letters)


def _same(rows: Sequence[Row]) -> str:
    sentences = dict.fromkeys(f"{row.family} is {row.same}" for row in rows if row.same)
    return f"* At this length: {'; '.join(sentences)}." if sentences else ""


def _group(axes: Any, place: int, rows: Sequence[Row], lines: Sequence[str], width: float, styles: Styles, speed: Measure) -> None:
    """The bars of one mask."""
    by_line = grouped(rows, lambda row: row.line)
    for number, line in enumerate(lines):
        here = by_line.get(line, [])
        x, ends = place + width * (number - (len(lines) - 1) / 2), ends_of(speed)(here)
        if ends:
            value, low, high = ends
            error = [[value - low], [high - value]]
            axes.bar(x, value, width * 0.92, yerr=error, error_kw={"elinewidth": 0.8}, **styles.bar(line))
        else:
            axes.text(x, 0, plain(f" {why(here)}"), rotation=90, ha="center", va="bottom", color=styles.ink(line), fontsize=6)
