"""Errors against fp64, as a share of the tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import Ends, Measure, choose, draw_lines, layout_over, same_note, shade_same
from longca.report.figures.sheet import Drawing, same_scale, sheet, without
from longca.results.naming import Row
from longca.results.points import grouped
from longca.results.record import Status
from longca.results.shares import is_wrong, worst_error

NOTE = "The worst of what the pass computes. Above the line at 1 a kernel is wrong; W: wrong, and not by the size of an error."


def errors(drawing: Drawing) -> Any:
    """A panel for each mask, or one with all masks side by side where there is but one length."""
    from matplotlib.lines import Line2D

    over, own = choose(drawing.rows)
    shown = sorted({row.line for row in own if worst_at([row]) or is_wrong([row])})
    if not shown:
        return None
    panels = grouped(own, over.panel)
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, lambda row: row.panel)))
    measure = Measure("error as a share of the tolerance", worst_at, log=True, marks=frozenset({Status.WRONG}))
    figure = sheet(drawing, list(panels), (over.name, measure.label), legend, [NOTE, same_note(own, over), without(own, shown)], layout)
    for axes, rows in zip(figure.axes, panels.values(), strict=True):
        axes.axhline(1, color="black", linewidth=0.8)
        draw_lines(axes, rows, over, measure, shown, drawing.styles)
        shade_same(axes, rows, over)
    same_scale(figure.axes)
    return figure


def worst_at(rows: Sequence[Row]) -> Ends | None:
    """None for rows that are wrong for another reason than an error of some size."""
    worst = worst_error(rows)
    least = 1 if is_wrong(rows) else 0
    return (worst.share,) * 3 if worst and least < worst.share < math.inf else None
