"""Charts with a line per kernel, over tokens, ranks, the share of visible blocks, or masks side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from longca.report.figures.sheet import LETTER, WIDTH, Layout
from longca.report.figures.style import GREY, Styles, plain
from longca.results import points
from longca.results.grouping import Names, at_longest, grouped, line_of
from longca.results.naming import Row, simpler_mask
from longca.results.statuses import LETTERS
from longca.text import format_size

STRIP = 0.16  # inches that a row of letters takes of a panel's height
NOTHING = points.Point(math.nan, math.nan, math.nan)  # a line breaks where there is nothing


class Over(NamedTuple):
    """What a chart is drawn over: the place of a row, the panel it belongs to, and its line."""

    place: Callable[[Row], Any]
    panel: Names
    name: str
    text: Callable[[Any], str]
    series: Names = line_of


LENGTH = Over(lambda row: row.record.problem.seqlen, lambda row: row.panel, "tokens", format_size)
RATIO = Over(lambda row: row.ratio, lambda row: row.family, "share of visible blocks", "{:g}".format)
RANKS = Over(
    lambda row: row.record.problem.ranks if row.record.method else None, lambda row: row.family, "ranks", str, lambda row: row.series
)
MASKS = Over(lambda row: f"{row.panel}, {format_size(row.record.problem.seqlen)}", lambda row: "", "", str)


def choose(rows: Sequence[Row]) -> tuple[Over, list[Row]]:
    """Over tokens where half of the masks have several lengths, else over the share of visible blocks where all are patterns and one has
    several, else over masks at their longest length; and the rows for it."""
    several = [len({row.record.problem.seqlen for row in own}) > 1 for own in grouped(rows, LENGTH.panel).values()]
    if 2 * sum(several) >= len(several):
        return LENGTH, list(rows)
    if all(row.ratio is not None for row in rows) and over_ratio(rows):
        return RATIO, at_longest(rows, RATIO.panel)
    return MASKS, at_longest(rows, LENGTH.panel)


def over_ratio(rows: Sequence[Row]) -> list[Row]:
    """Block patterns at their longest length, of which there are at least two shares of visible blocks."""
    own = at_longest([row for row in rows if row.ratio is not None], RATIO.panel)
    several = {family for family, group in grouped(own, RATIO.panel).items() if len({row.ratio for row in group}) > 1}
    return [row for row in own if row.family in several]


def draw_lines(axes: Any, rows: Sequence[Row], over: Over, measure: points.Measure, lines: Iterable[str], styles: Styles) -> None:
    """The lines of one panel, and letters where they have nothing."""
    found = dict.fromkeys(map(over.place, rows))
    places = list(found) if over is MASKS else sorted(found)
    spots = dict(zip(places, range(len(places)) if over is MASKS else places, strict=True))
    by_place = grouped(rows, lambda row: (over.series(row), over.place(row)))
    failed: dict[float, dict[str, list[str]]] = {spot: {} for spot in spots.values()}  # which lines have nothing there, by their letter
    for line in lines:
        drawn: list[points.Point] = []
        for place, spot in spots.items():
            here = by_place.get((line, place), [])
            drawn.append(points.point(here, measure) or NOTHING)
            why = [row.record.status for row in here if not row.record.ok]
            if drawn[-1] is NOTHING and why:
                failed[spot].setdefault(LETTERS[why[0]], []).append(line)
        if any(point is not NOTHING for point in drawn):
            _line(axes, list(spots.values()), drawn, styles.line(line) | ({"linestyle": "none"} if over is MASKS else {}))
    _foot(axes, over, spots)
    _height(axes, measure.log, max(map(len, failed.values())))
    _letters(axes, failed, styles)


def _line(axes: Any, spots: Sequence[float], drawn: Sequence[points.Point], style: dict[str, Any]) -> None:
    axes.plot(spots, [value for value, _, _ in drawn], **style)
    spread = [(spot, low, high) for spot, (_, low, high) in zip(spots, drawn, strict=True) if low < high]
    if spread:
        axes.vlines(*zip(*spread, strict=True), color=style["color"], linewidth=0.9)


def _height(axes: Any, log: bool, rows: int) -> None:
    """From nought, or over decades. Letters get a strip of their own at the foot."""
    if log:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_yscale("log")
        low, high = axes.get_ylim()
        subs = (1, 2, 5) if high / low < 300 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(low / (high / low) ** (0.09 * rows), high)
        return
    top = max(axes.get_ylim()[1], 1.04 * axes.dataLim.y1)  # a marker at the highest value is not cut
    axes.set_ylim(-STRIP / (axes.get_position().height * axes.figure.get_figheight()) * top * rows, top)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])


def _foot(axes: Any, over: Over, spots: Mapping[Any, Any]) -> None:
    """Ticks, labels and ends of the axis below."""
    places = list(spots.values())
    if over is MASKS:
        axes.set_xticks(places, [plain(name) for name in spots], rotation=90)
        axes.set_xlim(-0.5, len(places) - 0.5)
    elif over is RATIO:
        axes.set_xticks(places, [over.text(place) for place in places])
        axes.set_xlim(0, 1)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, spaced(places, over.text))
        axes.set_xlim(places[0] / 1.4, places[-1] * 1.4)
        axes.minorticks_off()


def layout_over(over: Over, masks: Sequence[str]) -> Layout:
    """Room for the labels below a panel; with all masks side by side in it, for their names."""
    if over is not MASKS:
        return Layout(below=0.6 if over is RATIO else 0.75)
    return Layout(columns=1, below=0.48 + LETTER * max(map(len, masks)), width=min(WIDTH, 2 + 0.5 * len(masks)))


def _letters(axes: Any, failed: Mapping[float, Mapping[str, list[str]]], styles: Styles) -> None:
    """A letter where there is nothing; several lines with the same one share it, with their number where there is room for that."""
    spots = list(failed)
    for spot, marks in failed.items():
        crowded = axes.get_xscale() == "log" and any(other != spot and _close(spot, other, spots) for other in spots)
        for row, (mark, lines) in enumerate(marks.items()):
            alone = len(lines) == 1
            style = {"color": styles.ink(lines[0]) if alone else GREY, "ha": "center", "fontsize": 7 if alone else 6}
            text = mark if alone or crowded else f"{mark}{len(lines)}"
            axes.annotate(text, (spot, 0), (0, 2 + 8 * row), xycoords=("data", "axes fraction"), textcoords="offset points", **style)


def _close(one: float, other: float, places: Sequence[float]) -> bool:
    """Whether two labels would touch: about thirteen fit side by side."""
    return abs(math.log2(one / other)) <= (math.log2(places[-1] / places[0]) + 1) / 13


def spaced(places: Sequence[int], text: Callable[[Any], str] = format_size) -> list[str]:
    """Labels: what would run into another one goes to a second row, powers of two stay in the first; what touches others in both is left
    out."""
    rows: list[list[int]] = [[], []]
    for place in sorted(places, key=lambda n: (n & (n - 1) != 0, -n)):
        free = [kept for kept in rows if not any(_close(place, other, places) for other in kept)]
        if free:
            free[0].append(place)
    starts = {place: start for start, kept in zip(("", "\n"), rows, strict=True) for place in kept}
    return [starts[place] + text(place) if place in starts else "" for place in places]


def same_note(rows: Iterable[Row]) -> str:
    """Which masks show the same as simpler ones, and at which lengths."""
    lengths: dict[str, list[int]] = {}
    for (mask, seqlen), own in sorted(grouped(rows, lambda row: (row.mask_name, row.record.problem.seqlen)).items()):
        if same := simpler_mask(own):
            lengths.setdefault(f"{mask} is {same}", []).append(seqlen)
    parts = [f"{words} at {', '.join(map(format_size, own))}" for words, own in lengths.items()]
    return f"At some lengths a mask shows the same pairs as a simpler one: {'; '.join(parts)}." if parts else ""
