"""Errors against fp64, as a share of what is allowed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from longca.report.figures.lines import Measure, Point, choose, draw_lines, layout_over, same_note, shade_same
from longca.report.figures.sheet import Drawing, same_scale, sheet, without
from longca.report.measures import grouped, worst_error
from longca.report.reading import Record

NOTE = "The worst of what the pass computes. Above the line at 1 a kernel is wrong; W: wrong, and not by the size of an error."


def errors(drawing: Drawing) -> Any:
    """A panel for each mask, or one with all masks side by side where there is but one length."""
    from matplotlib.lines import Line2D

    over, own = choose(drawing.records)
    shown = sorted({record["line"] for record in own if worst_at([record]) or record["status"] == "wrong"})
    if not shown:
        return None
    panels = grouped(own, over.panel)
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, "problem")))
    measure = Measure("error as a share of what is allowed", worst_at, log=True, marks=("wrong",))
    figure = sheet(drawing, list(panels), (over.name, measure.label), legend, [NOTE, same_note(own, over), without(own, shown)], layout)
    for axes, records in zip(figure.axes, panels.values(), strict=True):
        axes.axhline(1, color="black", linewidth=0.8)
        draw_lines(axes, records, over, measure, shown, drawing.styles)
        shade_same(axes, records, over)
    same_scale(figure.axes)
    return figure


def worst_at(records: Iterable[Record]) -> Point | None:
    """None for what is wrong for another reason than an error that has a size: it has none to show."""
    own = list(records)
    found = worst_error(own)
    least = 1 if any(record["status"] == "wrong" for record in own) else 0
    return (found.share,) * 3 if found and least < found.share < math.inf else None
