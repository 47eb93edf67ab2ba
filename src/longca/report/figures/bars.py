"""Grouped bars: masks side by side, each at its own longest length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import broken
from longca.report.figures.sheet import LEFT, LETTER, RIGHT, WIDTH, Drawing, Layout, sheet, without
from longca.report.figures.style import Styles, plain
from longca.report.measures import at_longest, grouped, timed, word
from longca.report.reading import Record
from longca.report.settings import speed_at
from longca.text import format_size

WIDEST = 0.45  # inches that a bar may take
MOST_BARS = 64  # side by side, so that a word fits into the place of one


def at_the_longest(drawing: Drawing) -> Any:
    """A bar per kernel, and a word where there is none."""
    from matplotlib.patches import Patch

    own = at_longest(drawing.records, "problem")
    shown = timed(own)
    if not shown:
        return None
    masks = list(grouped(own, "problem").items())
    rows = -(-len(masks) * (len(shown) + 1) // MOST_BARS)
    beside = -(-len(masks) // rows)
    parts = [masks[start : start + beside] for start in range(0, len(masks), beside)]
    legend = [(line, Patch(**drawing.styles.bar(line))) for line in shown]
    width = WIDTH if rows > 1 else max(4.5, min(WIDTH, 1.2 + 0.2 * beside * (len(shown) + 1)))
    labels = [_label(name, records, int((width - 1) / LETTER / beside)) for name, records in masks]
    layout = Layout(columns=1, height=1.5, below=0.48 + 0.14 * max(label.count("\n") + 1 for label in labels), width=width)
    names = "", "TFLOP/s at the longest length"
    figure = sheet(drawing, [""] * len(parts), names, legend, [_same(own), without(own, shown)], layout)
    top, slot = 0.0, min(0.88 / len(shown), WIDEST * beside / (width - LEFT - RIGHT))
    for number, (axes, part) in enumerate(zip(figure.axes, parts, strict=True)):
        for place, (_, records) in enumerate(part):
            _group(axes, place, records, shown, slot, drawing.styles)
        axes.set_xticks(range(len(part)), labels[number * beside : number * beside + len(part)])
        axes.set_xlim(-0.55, beside - 0.45)  # bars are as wide in the last row
        axes.tick_params(axis="x", length=0)
        axes.grid(axis="x", visible=False)
        top = max(top, axes.get_ylim()[1])
    for axes in figure.axes:
        axes.set_ylim(0, top)
    return figure


def _label(mask: str, records: Sequence[Record], letters: int) -> str:
    star = "*" if any(record["same"] for record in records) else ""
    return broken(f"{mask}, {format_size(records[0]['seqlen'])}{star}", letters)


def _same(records: Sequence[Record]) -> str:
    found = dict.fromkeys(f"{record['family']} is {record['same']}" for record in records if record["same"])
    return f"* At this length: {'; '.join(found)}." if found else ""


def _group(axes: Any, place: int, records: Sequence[Record], lines: Sequence[str], width: float, styles: Styles) -> None:
    """The bars of one mask."""
    by_line = grouped(records, "line")
    for number, line in enumerate(lines):
        here = by_line.get(line, [])
        x, found = place + width * (number - (len(lines) - 1) / 2), speed_at(here)
        if found:
            error = [[found[0] - found[1]], [found[2] - found[0]]]
            axes.bar(x, found[0], width * 0.92, yerr=error, error_kw={"elinewidth": 0.8}, **styles.bar(line))
        else:
            axes.text(x, 0, plain(f" {word(here)}"), rotation=90, ha="center", va="bottom", color=styles.ink(line), fontsize=6)
