"""What attention costs beside its time: memory, and preparing (making the mask, planning for it, compiling)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from longca.report.figures.lines import LENGTH, Measure, Over, Point, choose, draw_lines, layout_over
from longca.report.figures.sheet import LETTER, Drawing, same_scale, sheet, without
from longca.report.figures.style import Styles, plain
from longca.report.measures import grouped, timed
from longca.report.reading import Record

ALL = "the most of any mask"
MASK = "making the mask: median, range"
PLAN = "planning: median"
COMPILE = "compiling: the most"
OF_MEASURED = "A point is of the masks measured there: a line may bend where a kernel has no time on some mask."


def memory(drawing: Drawing) -> Any:
    """A panel for each block pattern, as the size of its blocks matters, and one for all masks made of bands. Nothing where no memory
    was counted."""
    from matplotlib.lines import Line2D

    known = [record for record in drawing.records if record["status"] == "ok" and record.get("peak_gib")]
    if not known:
        return None
    over, own = choose(known)
    if over is LENGTH:
        own = [record if record["sparse"] else record | {"problem": _any_mask(record)} for record in own]
    shown, panels = timed(own), grouped(own, over.panel)
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, "problem")))
    measure = Measure("GiB beyond the inputs", _most("peak_gib"), log=True)  # plain attention takes a hundred times as much as the rest
    figure = sheet(
        drawing,
        list(panels),
        (over.name, measure.label),
        legend,
        [OF_MEASURED if over is LENGTH else "", without(drawing.records, shown)],
        layout,
    )
    for axes, records in zip(figure.axes, panels.values(), strict=True):
        draw_lines(axes, records, over, measure, shown, drawing.styles)
    same_scale(figure.axes)
    return figure


def _any_mask(record: Record) -> str:
    return f"{ALL} ×{record['ranks']}" if record.get("ranks") else ALL


def _most(field: str) -> Callable[[list[Record]], Point | None]:
    def at(records: list[Record]) -> Point | None:
        values = [record[field] for record in records if record["status"] == "ok" and (record.get(field) or 0) > 0]
        return (max(values),) * 3 if values else None

    return at


def preparing(drawing: Drawing) -> Any:
    """Making a mask is no kernel's doing, planning is over tokens (or whatever there are several of), compiling is done once: a bar."""
    from matplotlib.lines import Line2D

    real = [record for record in drawing.records if not record.get("simulated")]  # a simulation prepares nothing
    ok = [record for record in real if record["status"] == "ok" and record.get("build_ms") is not None]
    if not ok:
        return None
    over, own = choose(ok)
    shown = timed(own)
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    layout = layout_over(over, list(grouped(own, "problem")), columns=3)
    layout = layout._replace(height=max(1.9, 0.15 * len(shown)), below=layout.below + 0.1)
    figure = sheet(
        drawing, [MASK, PLAN, COMPILE], ("", "ms"), legend, [OF_MEASURED if over is LENGTH else "", without(real, shown)], layout
    )
    built, planned, compiled = figure.axes
    for axes in (built, planned):
        axes.set_xlabel(over.name)
    _making(built, own, over)
    draw_lines(planned, own, over, Measure("ms", _typical("plan_ms"), log=True), shown, drawing.styles)
    _narrow(compiled, LETTER * max(map(len, shown)) / figure.get_figwidth())
    _compiling(compiled, own, shown, drawing.styles)
    return figure


def _making(axes: Any, records: Sequence[Record], over: Over) -> None:
    nobody = [record | {"line": ""} for record in records]
    draw_lines(axes, nobody, over, Measure("ms", _typical("build_ms", spread=True), log=True), [""], Styles([[""]], colours=("black",)))


def _typical(field: str, spread: bool = False) -> Callable[[list[Record]], Point | None]:
    def at(records: list[Record]) -> Point | None:
        values = [record[field] for record in records if (record.get(field) or 0) > 0]
        middle = median(values) if values else 0.0
        return (middle, min(values), max(values)) if values and spread else (middle,) * 3 if values else None

    return at


def _narrow(axes: Any, part: float) -> None:
    """Leaves a part of the figure's width to the names beside a panel."""
    box = axes.get_position()
    part = min(part, 0.6 * box.width)
    axes.set_position((box.x0 + part, box.y0, box.width - part, box.height))


def _compiling(axes: Any, records: Sequence[Record], lines: Sequence[str], styles: Styles) -> None:
    """Bars that lie, so that their names can be read; a word where nothing was compiled."""
    by_line, most = grouped(records, "line"), _most("compile_ms")
    axes.set_xscale("log")
    axes.set_xlabel("ms")
    for place, line in enumerate(lines):
        found = most(by_line[line])
        if found:
            axes.barh(place, found[0], 0.8, **styles.bar(line))
        else:
            axes.text(0.02, place, "nothing", transform=axes.get_yaxis_transform(), va="center", fontsize=6, color=styles.ink(line))
    axes.set_xlim(left=min(1.0, axes.get_xlim()[0]))
    axes.set_yticks(range(len(lines)), [plain(line) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
