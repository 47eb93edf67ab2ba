"""What attention costs beside its time: memory, and preparing (making the mask, planning for it, compiling)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import LENGTH, Measure, Over, choose, draw_lines, ends_of, layout_over
from longca.report.figures.sheet import LETTER, Drawing, same_scale, sheet, without
from longca.report.figures.style import Styles, plain
from longca.results.naming import Row
from longca.results.points import COMPILING, MEMORY, TYPICAL_BUILDING, TYPICAL_PLANNING, grouped, timed_lines

ALL = "the most of any mask"
MASK = "making the mask: median, range"
PLAN = "planning: median"
COMPILE = "compiling: the most"
OF_MEASURED = "A point is of the masks measured there: a line may bend where a kernel has no time on some mask."


def memory(drawing: Drawing) -> Any:
    """A panel for each block pattern, as the size of its blocks matters, and one for all masks made of bands. Nothing where no memory
    was counted."""
    from matplotlib.lines import Line2D

    known = [row for row in drawing.rows if row.record.ok and row.record.peak_gib]
    if not known:
        return None
    over, own = choose(known)
    shown, panels = timed_lines(own), grouped(own, lambda row: _panel(row) if over is LENGTH else over.panel(row))
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, lambda row: row.panel)))
    measure = Measure("GiB beyond the inputs", ends_of(MEMORY), log=True)  # plain attention takes a hundred times as much as the rest
    figure = sheet(
        drawing,
        list(panels),
        (over.name, measure.label),
        legend,
        [OF_MEASURED if over is LENGTH else "", without(drawing.rows, shown)],
        layout,
    )
    for axes, rows in zip(figure.axes, panels.values(), strict=True):
        draw_lines(axes, rows, over, measure, shown, drawing.styles)
    same_scale(figure.axes)
    return figure


def _panel(row: Row) -> str:
    if row.is_pattern:
        return row.panel
    return f"{ALL} ×{row.record.problem.ranks}" if row.record.method else ALL


def preparing(drawing: Drawing) -> Any:
    """Making a mask is no kernel's doing, planning is over tokens (or whatever there are several of), compiling is done once: a bar."""
    from matplotlib.lines import Line2D

    real = [row for row in drawing.rows if not row.record.simulated]  # a simulation prepares nothing
    ok = [row for row in real if row.record.ok and row.record.build_ms is not None]
    if not ok:
        return None
    over, own = choose(ok)
    shown = timed_lines(own)
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, lambda row: row.panel)), columns=3)
    layout = layout._replace(height=max(1.9, 0.15 * len(shown)), below=layout.below + 0.1)
    figure = sheet(
        drawing, [MASK, PLAN, COMPILE], ("", "ms"), legend, [OF_MEASURED if over is LENGTH else "", without(real, shown)], layout
    )
    built, planned, compiled = figure.axes
    for axes in (built, planned):
        axes.set_xlabel(over.name)
    _making(built, own, over)
    draw_lines(planned, own, over, Measure("ms", ends_of(TYPICAL_PLANNING), log=True), shown, drawing.styles)
    _narrow(compiled, LETTER * max(map(len, shown)) / figure.get_figwidth())
    _compiling(compiled, own, shown, drawing.styles)
    return figure


def _making(axes: Any, rows: Sequence[Row], over: Over) -> None:
    """One line for all kernels: a mask is made once."""
    for_all = over._replace(series=lambda row: "")
    draw_lines(axes, rows, for_all, Measure("ms", ends_of(TYPICAL_BUILDING), log=True), [""], Styles([[""]], colours=("black",)))


def _narrow(axes: Any, part: float) -> None:
    """Leaves a part of the figure's width to the names beside a panel."""
    box = axes.get_position()
    part = min(part, 0.6 * box.width)
    axes.set_position((box.x0 + part, box.y0, box.width - part, box.height))


def _compiling(axes: Any, rows: Sequence[Row], lines: Sequence[str], styles: Styles) -> None:
    """Bars that lie, so that their names can be read; a word where nothing was compiled."""
    by_line, most = grouped(rows, lambda row: row.line), ends_of(COMPILING)
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    for place, line in enumerate(lines):
        ends = most(by_line[line])
        if ends:
            axes.barh(place, ends[0], 0.8, **styles.bar(line))
        else:
            axes.text(0.02, place, "nothing", transform=axes.get_yaxis_transform(), va="center", fontsize=6, color=styles.ink(line))
    axes.set_xlim(left=min(1.0, axes.get_xlim()[0]))
    axes.set_yticks(range(len(lines)), [plain(line) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
