"""Speed over tokens or the share of visible blocks, and the time of block patterns beside that of the dense mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from longca.report.figures.lines import LENGTH, RATIO, Measure, Over, draw_lines, layout_over, over_ratio, same_note, shade_same
from longca.report.figures.sheet import Drawing, same_scale, sheet, without
from longca.report.figures.style import level
from longca.report.measures import beside, grouped, time_at, timed
from longca.report.reading import Record
from longca.report.settings import MARKS, MARKS_EXPLAINED, speed_at

MOST_DENSE = 3  # level lines: those that block patterns find it hardest to beat
FEW, TALL = 6, 2.5  # of more lines than these, the best can be told apart in a panel of so many inches
SPEED = Measure("TFLOP/s", speed_at, marks=tuple(MARKS))
TIME = Measure("ms", time_at, marks=tuple(MARKS))


def over_length_or_ratio(drawing: Drawing) -> Any:
    """A panel for each mask with several lengths or shares: a single point is seen better among the bars."""
    lengths = {name: len(grouped(group, "seqlen")) for name, group in grouped(drawing.records, "problem").items()}
    own = [record for record in drawing.records if lengths[record["problem"]] > 1]
    return charts(drawing, own, LENGTH, SPEED) if own else charts(drawing, over_ratio(drawing.records), RATIO, SPEED)


def beside_dense(drawing: Drawing) -> Any:
    """Milliseconds: where the line of a kernel on blocks lies below that of the dense mask, blocks are worth it."""
    return charts(drawing, over_ratio(drawing.records), RATIO, TIME)


def charts(drawing: Drawing, records: Sequence[Record], over: Over, measure: Measure) -> Any:
    """A panel for each value of `over.panel`; over the share of visible blocks with the dense mask of the same run as level lines."""
    from matplotlib.lines import Line2D

    shown = timed(records)
    if not shown:
        return None
    panels = grouped(records, over.panel)
    dense = {name: _levels(own, drawing.everything, measure) if over is RATIO else {} for name, own in panels.items()}
    legend = [(line, Line2D([], [], **drawing.styles.line(line))) for line in shown]
    levels = dict.fromkeys(name for found in dense.values() for name in found)  # the fastest first
    looks = {name: level(number) for number, name in enumerate(levels)}
    legend += [(name, Line2D([], [], **look)) for name, look in looks.items()]
    letters = any(record["line"] in shown and record["status"] in measure.marks for record in records)
    notes = [MARKS_EXPLAINED if letters else "", same_note(records, over), without(records, shown)]
    figure = sheet(
        drawing,
        list(panels),
        (over.name, measure.label),
        legend,
        notes,
        layout_over(over)._replace(height=TALL if len(shown) > FEW else 1.75),
    )
    for axes, (name, own) in zip(figure.axes, panels.items(), strict=True):
        for mask, value in dense[name].items():
            axes.axhline(value, **looks[mask])
        draw_lines(axes, own, over, measure, shown, drawing.styles)
        shade_same(axes, own, over)
    if over is RATIO:
        same_scale(figure.axes)
    return figure


def _levels(records: Sequence[Record], everything: Sequence[Record], measure: Measure) -> dict[str, float]:
    """The value of the fastest kernels on the dense mask, by what that is called."""
    lines = grouped(beside(records, everything), "line")
    times = {line: point[0] for line, own in lines.items() if (point := time_at(own))}
    fastest = sorted(times, key=lambda line: times[line])[:MOST_DENSE]
    return {f"{line} on {lines[line][0]['problem']} (dense)": point[0] for line in fastest if (point := measure.at(lines[line]))}
