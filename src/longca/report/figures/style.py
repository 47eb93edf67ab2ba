"""One style for all figures of a call: the same colour, marker and dash for a kernel in each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from longca.report.looks import numbers

# searched for: the two that are most alike are as far apart for the colour-blind (red or green) as for others. Black and grey are kept for
# dense masks beside block patterns
COLOURS = (
    *("#1c51bc", "#f89402", "#005757", "#cb6db3", "#d74912", "#45b8ff", "#4e0026", "#7cbd8d", "#8279f8", "#8a2c07", "#160086", "#4f8668"),
)
LEVELS = (("black", "--"), ("0.45", (0, (8, 2))), ("0.6", (0, (1, 1))))  # colour and dash of dense masks
MARKERS = "os^DvPX<>*p"
THIN = {"*": 6.0, "P": 5.0, "X": 5.0}  # markers that need more points to look as large as the others
# their numbers have no common divisor (looks.py): kernels of one colour differ in marker and dash, and so in grey, too
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
SIMULATED_FILLS = ("none", "left", "right", "top", "bottom")  # of markers, one for each cluster
GREY = "0.35"
PAPER: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "pdf.fonttype": 42,
    "svg.hashsalt": "longca",  # the same figure is the same file
}


class Line(NamedTuple):
    """A line by its name: what has the same base has one colour, marker and dash."""

    name: str
    base: str
    cluster: str | None = None  # that it was simulated on


class Styles:
    """How each line is drawn. What was simulated looks like what was measured with the same kernel, but has hollow markers on a thin,
    dotted line."""

    def __init__(self, groups: Iterable[Iterable[Line]]) -> None:
        """`groups` are the lines that can stand in one figure: as far as there are colours, each gets its own there."""
        several = [list(group) for group in groups]
        self._lines = {line.name: line for group in several for line in group}
        self._numbers = numbers([[line.base for line in group] for group in several])
        self._clusters = list(dict.fromkeys(line.cluster for line in self._lines.values() if line.cluster))

    def line(self, name: str) -> dict[str, Any]:
        number, cluster = self._numbers[self._lines[name].base], self._lines[name].cluster
        marker, colour = MARKERS[number % len(MARKERS)], self.colour(name)
        style = {"color": colour, "marker": marker, "markersize": THIN.get(marker, 4.0)}
        style |= {"markeredgecolor": colour if cluster else "white", "markeredgewidth": 0.8 if cluster else 0.3}
        if cluster:
            fill = SIMULATED_FILLS[self._clusters.index(cluster) % len(SIMULATED_FILLS)]
            return style | {"linestyle": ":", "linewidth": 0.8, "fillstyle": fill, "markerfacecoloralt": "white"}
        return style | {"linestyle": DASHES[number % len(DASHES)], "linewidth": 1.0}

    def colour(self, name: str) -> str:
        return COLOURS[self._numbers[self._lines[name].base] % len(COLOURS)]

    def ink(self, line: str) -> tuple[float, ...]:
        """The colour of words: darker, so that a pale one can be read."""
        from matplotlib.colors import to_rgb

        return tuple(0.65 * part for part in to_rgb(self.colour(line)))


def level(number: int) -> dict[str, Any]:
    """A dense mask's line: in no kernel's colour, and without markers."""
    colour, dash = LEVELS[number % len(LEVELS)]
    return {"color": colour, "linestyle": dash, "linewidth": 1.4, "marker": ""}


def plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")
