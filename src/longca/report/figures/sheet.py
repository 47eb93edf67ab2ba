"""A figure's panels, title, legend and notes, laid out in inches. Letting matplotlib find the layout takes longer than drawing does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, NamedTuple

from longca.errors import BadInput
from longca.report.figures.style import Styles, plain
from longca.results.naming import Row
from longca.results.record import Status
from longca.results.statuses import WORDS

WIDTH = 10.0
ABOVE = 0.22  # what a panel's title needs of the place below the panel over it
LETTER = 0.067  # about the width of one, in inches
LINE = 0.142  # height of a line of text
NOT_SHOWN = WORDS | {Status.OK: "not counted"}
LEFT, RIGHT, TOP, GAP = 0.75, 0.15, 0.58, 0.5  # around all panels, and between two in a row
Legend = Sequence[tuple[str, Any]]  # names and handles


class Drawing(NamedTuple):
    """What a figure is drawn from: the rows of one pass of one setting, and all others of the call."""

    title: str
    rows: list[Row]
    everything: Sequence[Row]
    styles: Styles


class Layout(NamedTuple):
    """`below` is what the labels under a panel need; `columns` stand side by side."""

    columns: int = 3
    height: float = 1.75
    below: float = 0.75
    width: float = WIDTH


def sheet(drawing: Drawing, panels: Sequence[str], axis: tuple[str, str], legend: Legend, notes: Iterable[str], layout: Layout) -> Any:
    """A figure with axes for each panel in `figure.axes`, and room below them for the legend and notes. `axis` are the names along the
    foot and the side, one for all panels."""
    from matplotlib.figure import Figure

    columns = min(layout.columns, len(panels))
    rows = -(-len(panels) // columns)
    width = layout.width if columns > 1 or layout.columns == 1 else 0.62 * layout.width
    said = [line for note in notes if note for line in wrap(note, int((width - 0.4) / LETTER / 0.95))]
    beside, deep = _legend_shape([name for name, _ in legend], width)
    words = LINE * len(said) + (0.1 if said else 0)
    foot = words + 1.12 * LINE * deep + 0.08
    named = 1.7 * LINE if axis[0] else 0
    across = (width - LEFT - RIGHT - GAP * (columns - 1)) / columns
    titles = [wrap(name, max(12, int((across + 0.5 * GAP) / LETTER))) for name in panels]
    heading = wrap(drawing.title, int((width - 0.2) / LETTER))
    over = LINE * (max(map(len, titles)) - 1)
    top = TOP + over + 1.3 * LINE * (len(heading) - 1)
    down = layout.height + layout.below + over
    height = top + rows * down - ABOVE + named + foot
    figure = Figure((width, height), dpi=200)
    figure.text(0.5, 1 - 0.1 / height, plain("\n".join(heading)), ha="center", va="top", fontsize=9.5)
    for number, lines in enumerate(titles):
        row, column = divmod(number, columns)
        bottom = height - top - row * down - layout.height
        place = ((LEFT + column * (across + GAP)) / width, bottom / height, across / width, layout.height / height)
        figure.add_axes(place).set_title(plain("\n".join(lines)), pad=5)
    middle = LEFT / width + (1 - (LEFT + RIGHT) / width) / 2
    figure.text(middle, (foot + named) / height, axis[0], ha="center", va="top")
    figure.text(0.1 / width, (foot + named + height - top) / 2 / height, axis[1], rotation=90, ha="left", va="center")
    if legend:
        names, handles = zip(*legend, strict=True)
        spacing: dict[str, Any] = {"borderaxespad": 0, "borderpad": 0, "labelspacing": 0.3, "handlelength": 3.8, "frameon": False}
        corner = (0.5, (foot - words) / height)
        figure.legend(handles, [plain(name) for name in names], ncols=beside, loc="upper center", bbox_to_anchor=corner, **spacing)
    figure.text(0.5, foot / height, plain("\n".join(said)), ha="center", va="top", linespacing=1.25)
    return figure


def _legend_shape(names: Sequence[str], width: float) -> tuple[int, int]:
    """How many stand side by side, and how many lines that makes."""
    if not names:
        return 0, 0
    fit = max(1, int((width - 0.3) / (LETTER * max(map(len, names)) + 0.8)))
    rows = -(-len(names) // fit)
    return -(-len(names) // rows), rows


def same_scale(panels: Sequence[Any]) -> None:
    """All panels as high as the highest, with its ticks."""
    ends = [axes.get_ylim() for axes in panels]
    highest = max(panels, key=lambda axes: axes.get_ylim()[1])
    for axes in panels:
        if axes.get_yscale() == "linear":
            axes.set_yticks(highest.get_yticks())
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))


def without(rows: Iterable[Row]) -> str:
    """A sentence that names these lines, which a figure has nothing of, and why."""
    why: dict[str, set[str]] = {}
    for row in rows:
        why.setdefault(row.line, set()).add(NOT_SHOWN[row.record.status])
    named = [f"{line} ({', '.join(sorted(words))})" for line, words in sorted(why.items())]
    return f"Nothing to show of {', '.join(named)}." if named else ""


KINDS = ("png", "pdf", "svg")
UNDATED: dict[str, dict[str, None]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}


def save(figure: Any, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in KINDS]
    for path in paths:
        try:
            figure.savefig(path, metadata=UNDATED.get(path.suffix))
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}; give another folder with --figures.") from error
    return paths
