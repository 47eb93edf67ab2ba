"""Speed over tokens or the share of visible blocks, and the time of block patterns beside that of the dense mask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from longca.report.figures.lines import LENGTH, RATIO, Measure, Over, draw_lines, ends_of, layout_over, over_ratio, same_note, shade_same
from longca.report.figures.sheet import Drawing, same_scale, sheet, without
from longca.report.figures.style import level
from longca.results import points
from longca.results.dense import dense_lines
from longca.results.naming import Row
from longca.results.points import grouped, timed_lines
from longca.results.statuses import LETTERS, LETTERS_EXPLAINED

MOST_DENSE = 3  # level lines: those that block patterns find it hardest to beat
FEW, TALL = 6, 2.5  # of more lines than these, the best can be told apart in a panel of so many inches
TIME = Measure("ms", ends_of(points.TIME), marks=frozenset(LETTERS))


def speed_measure(drawing: Drawing) -> Measure:
    """The speed, in one unit for the whole figure."""
    speed = points.speed_of(drawing.rows)
    return Measure(speed.label, ends_of(speed), marks=frozenset(LETTERS))


def over_length_or_ratio(drawing: Drawing) -> Any:
    """A panel for each mask with several lengths or shares: a single point is seen better among the bars."""
    panels = grouped(drawing.rows, LENGTH.panel)
    several = {name: rows for name, rows in panels.items() if len({row.record.problem.seqlen for row in rows}) > 1}
    measure = speed_measure(drawing)
    return charts(drawing, several, LENGTH, measure) if several else charts(drawing, _by_ratio(drawing), RATIO, measure)


def beside_dense(drawing: Drawing) -> Any:
    """Milliseconds: where the line of a kernel on blocks lies below that of the dense mask, blocks are worth it."""
    return charts(drawing, _by_ratio(drawing), RATIO, TIME)


def _by_ratio(drawing: Drawing) -> dict[str, list[Row]]:
    return grouped(over_ratio(drawing.rows), RATIO.panel)


def charts(drawing: Drawing, panels: Mapping[str, list[Row]], over: Over, measure: Measure) -> Any:
    """The panels, with the dense mask of the same run as level lines where they are over the share of visible blocks."""
    from matplotlib.lines import Line2D

    rows = [row for own in panels.values() for row in own]
    shown = timed_lines(rows, over.series)
    if not shown:
        return None
    dense = {name: _levels(own, drawing.everything, measure) if over.place is RATIO.place else {} for name, own in panels.items()}
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    levels = dict.fromkeys(name for values in dense.values() for name in values)  # the fastest first
    looks = {name: level(number) for number, name in enumerate(levels)}
    legend += [(name, Line2D([], [], **look)) for name, look in looks.items()]
    letters = any(over.series(row) in shown and row.record.status in measure.marks for row in rows)
    missing = [row for row in rows if over.series(row) not in shown]
    notes = [LETTERS_EXPLAINED if letters else "", same_note(rows, over), without(missing, ())]
    layout = layout_over(over)._replace(height=TALL if len(shown) > FEW else 1.75)
    figure = sheet(drawing, list(panels), (over.name, measure.label), legend, notes, layout)
    for axes, (name, own) in zip(figure.axes, panels.items(), strict=True):
        for mask, value in dense[name].items():
            axes.axhline(value, **looks[mask])
        draw_lines(axes, own, over, measure, shown, drawing.styles)
        shade_same(axes, own, over)
    if over.place is RATIO.place:
        same_scale(figure.axes)
    return figure


def _levels(rows: Sequence[Row], everything: Sequence[Row], measure: Measure) -> dict[str, float]:
    """The value of the fastest kernels on the dense mask, by what that is called."""
    lines = dense_lines(rows, everything, MOST_DENSE)
    return {f"{name} (dense)": ends[0] for name, own in lines.items() if (ends := measure.at(own))}
