"""Charts with a line per kernel, over tokens, ranks, the share of visible blocks, or masks side by side."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from longca.report.figures.sheet import GAP, LEFT, LETTER, LINE, RIGHT, WIDTH, Layout
from longca.report.figures.style import GREY, Styles, plain
from longca.report.measures import at_longest, grouped
from longca.report.reading import Record
from longca.report.settings import MARKS
from longca.text import format_size

STRIP = 0.16  # inches that a row of letters takes of a panel's height
FEWEST = 9  # letters beside each other, below which a name is turned
Point = tuple[float, float, float]  # the value, and the ends of its spread


class Over(NamedTuple):
    """What a chart is drawn over: a field of records, and the one that tells panels apart."""

    field: str
    panel: str
    name: str
    text: Callable[[Any], str]


class Measure(NamedTuple):
    """What is drawn of the records of one point. `marks` are the statuses of which a letter tells where there is none."""

    label: str
    at: Callable[[list[Record]], Point | None]
    log: bool = False
    marks: tuple[str, ...] = ()


LENGTH = Over("seqlen", "problem", "tokens", format_size)
RATIO = Over("ratio", "family", "share of visible blocks", "{:g}".format)
RANKS = Over("ranks", "panel", "ranks", str)
MASKS = Over("problem", "all", "", str)  # each is named


def choose(records: Sequence[Record]) -> tuple[Over, list[Record]]:
    """Over tokens where a mask has several lengths, else over the share of visible blocks where all are patterns and one has several,
    else over masks; and the records for it."""
    if any(len(grouped(own, "seqlen")) > 1 for own in grouped(records, "problem").values()):
        return LENGTH, list(records)
    if all(record["ratio"] is not None for record in records) and over_ratio(records):
        return RATIO, at_longest(records, "family")
    return MASKS, [record | {"all": ""} for record in records]


def over_ratio(records: Sequence[Record]) -> list[Record]:
    """Block patterns at their longest length, of which there are at least two shares of visible blocks."""
    own = at_longest([record for record in records if record["ratio"] is not None], "family")
    several = {family for family, group in grouped(own, "family").items() if len(grouped(group, "ratio")) > 1}
    return [record for record in own if record["family"] in several]


def draw_lines(axes: Any, records: Sequence[Record], over: Over, measure: Measure, lines: Iterable[str], styles: Styles) -> None:
    """The lines of one panel, and letters where they have nothing."""
    places = list(grouped(records, over.field)) if over is MASKS else sorted(grouped(records, over.field))
    spots = dict(zip(places, range(len(places)) if over is MASKS else places, strict=True))
    by_place = grouped(records, "line", over.field)
    failed: dict[float, dict[str, list[str]]] = {spot: {} for spot in spots.values()}  # which lines have nothing there, by their mark
    for line in lines:
        points: list[Point] = []
        for place, spot in spots.items():
            here = by_place.get((line, place), [])
            points.append(measure.at(here) or (math.nan,) * 3)  # a line breaks where there is nothing
            why = [record["status"] for record in here if record["status"] in measure.marks]
            if math.isnan(points[-1][0]) and why:
                failed[spot].setdefault(MARKS[why[0]], []).append(line)
        if not all(math.isnan(value) for value, _, _ in points):
            _line(axes, list(spots.values()), points, styles.line(line) | ({"linestyle": "none"} if over is MASKS else {}))
    _foot(axes, over, spots)
    _height(axes, measure, max(map(len, failed.values())))
    _letters(axes, failed, styles)


def _line(axes: Any, spots: Sequence[float], points: Sequence[Point], style: dict[str, Any]) -> None:
    axes.plot(spots, [value for value, _, _ in points], **style)
    spread = [(spot, low, high) for spot, (_, low, high) in zip(spots, points, strict=True) if low < high]
    if spread:
        axes.vlines(*zip(*spread, strict=True), color=style["color"], linewidth=0.9)


def _height(axes: Any, measure: Measure, rows: int) -> None:
    """From nought, or over decades. Letters get a strip of their own at the foot."""
    if measure.log:
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_yscale("log")
        low, high = axes.get_ylim()
        subs = (1, 2, 5) if high / low < 300 else (1,)
        axes.yaxis.set_major_locator(LogLocator(subs=subs))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
        axes.set_ylim(low / (high / low) ** (0.09 * rows), high)
        return
    top = axes.get_ylim()[1]
    axes.set_ylim(-STRIP / (axes.get_position().height * axes.figure.get_figheight()) * top * rows, top)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])


def _foot(axes: Any, over: Over, spots: Mapping[Any, Any]) -> None:
    """Ticks, labels and ends of the axis below."""
    places = list(spots.values())
    if over is MASKS:
        letters = int(axes.get_position().width * axes.figure.get_figwidth() / LETTER / len(places))
        axes.set_xticks(places, _under(list(spots), letters), rotation=90 if letters < FEWEST else 0)
        axes.set_xlim(-0.5, len(places) - 0.5)
    elif over is RATIO:
        axes.set_xticks(places, [over.text(place) for place in places])
        axes.set_xlim(0, 1)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, spaced(places, over.text))
        axes.set_xlim(places[0] / 1.4, places[-1] * 1.4)
        axes.minorticks_off()


def _under(names: Sequence[str], letters: int) -> list[str]:
    """Names of masks as labels; they stand upright where there is no room for them to lie."""
    return [plain(name) if letters < FEWEST else broken(name, letters) for name in names]


def layout_over(over: Over, masks: Sequence[str] = (), columns: int = 1) -> Layout:
    """Room for the labels below a panel; with all masks side by side in it, as wide as their names need."""
    return _masks_layout(masks, columns) if over is MASKS else Layout(below=0.6 if over is RATIO else 0.75)


def _masks_layout(names: Sequence[str], columns: int) -> Layout:
    width = WIDTH if columns > 1 else min(WIDTH, 2 + 1.3 * len(names))
    letters = int((width - LEFT - RIGHT - GAP * (columns - 1)) / columns / LETTER / len(names))
    labels = _under(names, letters)
    deep = LETTER * max(map(len, labels)) if letters < FEWEST else LINE * max(label.count("\n") + 1 for label in labels)
    return Layout(columns=columns, below=0.48 + deep, width=width)


def broken(name: str, letters: int) -> str:
    """A mask's name over several lines of at most so many letters: between words, and within one only where it is too long itself."""
    parts = [part for word in name.split(" ") for part in ([f"{word} "] if len(word) <= letters else re.split(r"(?<=_)", f"{word} "))]
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1] + part.rstrip()) > letters:
            lines.append("")
        lines[-1] += part
    return plain("\n".join(line.strip() for line in lines))


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


def shade_same(axes: Any, records: Sequence[Record], over: Over) -> None:
    """Grey where the mask is the very same as a simpler one."""
    places = [] if over is MASKS else sorted(grouped(records, over.field))
    for place in (place for place in places if any(record["same"] for record in records if record[over.field] == place)):
        near = [other for other in places if other != place]
        if over is RATIO:
            half = min((abs(place - other) for other in near), default=0.2) / 2
            axes.axvspan(place - half, place + half, color="0.9", zorder=0, linewidth=0)
        else:
            half = min([max(place / other, other / place) for other in near] + [2]) ** 0.5
            axes.axvspan(place / half, place * half, color="0.9", zorder=0, linewidth=0)


def same_note(records: Iterable[Record], over: Over) -> str:
    """What the grey means, in words: which masks are which simpler ones, and where."""
    found: dict[tuple[str, str], set[Any]] = {}
    for record in records if over is not MASKS else ():
        if record["same"]:
            found.setdefault((record[over.panel], record["same"]), set()).add(record[over.field])
    said = [f"{mask} is {same} at {', '.join(map(over.text, sorted(places)))}" for (mask, same), places in found.items()]
    return f"Grey: what a simpler mask shows, too, which says nothing about its own: {'; '.join(said)}." if said else ""
