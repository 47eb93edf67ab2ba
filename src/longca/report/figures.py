"""Figures for papers, PNG and PDF: speed over length, grouped bars at each mask's longest length, memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from longca.bench.summary import is_sparse, mask_names
from longca.errors import BadInput
from longca.report.naming import line_names
from longca.report.reading import Record
from longca.report.settings import MARKS, MARKS_EXPLAINED, PASSES, SIMULATED, by_setting, slug, speed_at
from longca.text import format_size

COLOURS = ("#0072b2", "#c44e00", "#007a59", "#b0508a", "#8a6500", "#4d3a9e", "#2b8cbe", "#4a4a48")
DASHES, MARKERS, HATCHES = ("-", "--", ":", "-.", (0, (5, 5))), "os^D", ("", "//", "..", "\\\\", "xx")
COLUMNS = 3
ALL = "the most of any mask"
WORDS = {"oom": "out of memory", "timeout": "timed out"}
Styles = Mapping[str, int]  # lines, and the number of the style of each
PAPER: dict[Any, Any] = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "pdf.fonttype": 42,
}


def write_figures(records: Iterable[Record], environments: Mapping[str, Record], folder: str | Path) -> list[Path]:
    """The files written. Each pass of each setting gets its own figures, as PNG and as PDF."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot write to {folder}: {error.strerror}; give another folder with --figures.") from error
    records, written = list(records), list[Path]()
    names = zip(records, mask_names(records), line_names(records), strict=True)
    named = [record | {"mask": mask, "line": line, "sparse": is_sparse(record)} for record, mask, line in names]
    with matplotlib.rc_context(PAPER):
        for setting, group in by_setting(named, environments).items():
            styles = {line: index for index, line in enumerate(_timed(group))}
            for which in (name for name in PASSES if any(record["pass"] == name for record in group)):
                own = [record for record in group if record["pass"] == which]
                for kind, draw in (("speed", _speed), ("bars", _bars), ("memory", _memory)):
                    figure = draw(own, styles)
                    if figure is not None:
                        figure.suptitle(_plain(f"{setting}, {which}"))
                        written += _save(figure, Path(folder) / f"{kind}-{slug(which)}-{slug(setting)}")
                        pyplot.close(figure)
    return written


def _timed(records: Iterable[Record]) -> list[str]:
    """Lines that have a time: the others would be empty entries of a legend."""
    return sorted({record["line"] for record in records if record["status"] == "ok"})


def _without(records: Iterable[Record], shown: Iterable[str]) -> str:
    """A sentence that names the lines which a figure has nothing of, and why."""
    why: dict[str, set[str]] = {}
    for record in records:
        if record["line"] not in shown:
            why.setdefault(record["line"], set()).add(record["status"])
    named = [f"{line} ({', '.join(sorted(WORDS.get(status, status) for status in statuses))})" for line, statuses in sorted(why.items())]
    return f"Nothing to show of {', '.join(named)}." if named else ""


def _save(figure: Any, stem: Path) -> list[Path]:
    """The layout is found once for both files, as it takes longer than drawing."""
    figure.draw_without_rendering()
    figure.set_layout_engine(None)
    box = figure.get_tightbbox().padded(0.1)
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    for path in paths:
        try:
            figure.savefig(path, dpi=200, bbox_inches=box, metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
        except OSError as error:
            raise BadInput(f"cannot write {path}: {error.strerror}; give another folder with --figures.") from error
    return paths


def _plain(text: str) -> str:
    """A dollar sign would begin a formula."""
    return text.replace("$", r"\$")


def _style(index: int, line: str) -> dict[str, Any]:
    """What was simulated has hollow markers and a thin, dotted line."""
    shape = MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]
    style = {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)], "marker": shape, "markersize": 4}
    return style | ({"markerfacecolor": "none", "linestyle": ":", "linewidth": 0.8} if SIMULATED in line else {"linewidth": 1.2})


def _panels(records: Iterable[Record], draw: Callable[[Any, list[Record]], None], same_scale: bool = False) -> Any:
    """A figure with a panel for each mask."""
    from matplotlib import pyplot

    masks: dict[str, list[Record]] = {}
    for record in records:
        masks.setdefault(record["mask"], []).append(record)
    columns = min(COLUMNS, len(masks))
    rows = -(-len(masks) // columns)
    size = (10 if columns > 1 else 6, 2.3 * rows + 1.2)
    figure, grid = pyplot.subplots(rows, columns, figsize=size, sharey=same_scale, squeeze=False, layout="constrained")
    for axes, (mask, own) in zip(grid.flat, masks.items(), strict=False):
        draw(axes, own)
        axes.set_title(_plain(mask))
    for axes in grid.flat[len(masks) :]:
        axes.set_visible(False)
    return figure


def _speed(records: Sequence[Record], styles: Styles) -> Any:
    shown = {line: styles[line] for line in _timed(records)}
    if not shown:
        return None
    figure = _panels(records, lambda axes, own: _over_length(axes, own, shown))
    figure.supylabel("TFLOP/s over tokens")
    _legend(figure, shown, MARKS_EXPLAINED, _without(records, shown))
    return figure


def _over_length(axes: Any, records: Sequence[Record], styles: Styles) -> None:
    lengths = sorted({record["seqlen"] for record in records})
    by_place: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_place.setdefault((record["line"], record["seqlen"]), []).append(record)
    failed: dict[int, dict[str, list[str]]] = {seqlen: {} for seqlen in lengths}  # which lines have no time there, by their mark
    for line, index in styles.items():
        speeds, errors = [], []
        for seqlen in lengths:
            here = by_place.get((line, seqlen), [])
            middle, low, high = speed_at(here) or (math.nan,) * 3  # a line breaks where there is no time
            speeds.append(middle)
            errors.append((middle - low, high - middle))
            if math.isnan(middle) and here:
                failed[seqlen].setdefault(MARKS[here[0]["status"]], []).append(line)
        if not all(map(math.isnan, speeds)):
            axes.errorbar(lengths, speeds, list(zip(*errors, strict=True)), **_style(index, line))
    _marks(axes, failed, styles)
    _length_axis(axes, lengths)
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.07 * top * max(map(len, failed.values())), top)  # letters get a strip of their own
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])


def _length_axis(axes: Any, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, _spaced(lengths))
    axes.set_xlim(lengths[0] / 1.4, lengths[-1] * 1.4)
    axes.minorticks_off()


def _marks(axes: Any, failed: Mapping[int, Mapping[str, list[str]]], styles: Styles) -> None:
    """A letter where there is no time; several lines with the same one share it, with their number where there is room for that."""
    lengths = list(failed)
    for seqlen, marks in failed.items():
        crowded = any(other != seqlen and _close(seqlen, other, lengths) for other in lengths)
        for row, (mark, lines) in enumerate(marks.items()):
            alone = len(lines) == 1
            colour = _style(styles[lines[0]], lines[0])["color"] if alone else "0.35"
            style = {"color": colour, "ha": "center", "fontsize": 7 if alone else 6, "fontweight": "bold"}
            text, place = mark if alone or crowded else f"{mark}{len(lines)}", (seqlen, 0)
            axes.annotate(text, place, (0, 2 + 8 * row), xycoords=("data", "axes fraction"), textcoords="offset points", **style)


def _close(one: int, other: int, lengths: Sequence[int]) -> bool:
    """Whether two labels would touch: about thirteen fit side by side."""
    return abs(math.log2(one / other)) <= (math.log2(lengths[-1] / lengths[0]) + 1) / 13


def _spaced(lengths: Sequence[int]) -> list[str]:
    """Labels: what would run into another one goes to a second row, powers of two stay in the first; what touches others in both is left
    out."""
    rows: list[list[int]] = [[], []]
    for seqlen in sorted(lengths, key=lambda n: (n & (n - 1) != 0, -n)):
        free = [kept for kept in rows if not any(_close(seqlen, other, lengths) for other in kept)]
        if free:
            free[0].append(seqlen)
    starts = {seqlen: start for start, kept in zip(("", "\n"), rows, strict=True) for seqlen in kept}
    return [starts[seqlen] + format_size(seqlen) if seqlen in starts else "" for seqlen in lengths]


def _bars(records: Sequence[Record], styles: Styles) -> Any:
    """Masks side by side, each at its own longest length, a bar per kernel, and a word where there is none."""
    from matplotlib import pyplot

    longest: dict[str, int] = {}
    for record in records:
        longest[record["mask"]] = max(longest.get(record["mask"], 0), record["seqlen"])
    own = [record for record in records if record["seqlen"] == longest[record["mask"]]]
    shown = {line: styles[line] for line in _timed(own)}
    if not shown:
        return None
    figure, axes = pyplot.subplots(figsize=(max(6, 1.3 * len(longest)), 3.4), layout="constrained")
    for place, mask in enumerate(longest):
        _group(axes, place, [record for record in own if record["mask"] == mask], shown)
    axes.set_xticks(
        range(len(longest)), [f"{_plain(mask)}, {format_size(n)}".replace("_", "_\n").replace(" ", "\n") for mask, n in longest.items()]
    )
    axes.set_ylabel("TFLOP/s at the longest length")
    axes.set_xlim(-0.6, len(longest) - 0.4)
    axes.grid(axis="x", visible=False)
    _legend(figure, shown, _without(own, shown), bars=True)
    return figure


def _group(axes: Any, place: int, records: Sequence[Record], styles: Styles) -> None:
    """The bars of one mask."""
    width = 0.85 / len(styles)
    for slot, (line, index) in enumerate(styles.items()):
        here = [record for record in records if record["line"] == line]
        x, found, colour = place - 0.425 + width * (slot + 0.5), speed_at(here), COLOURS[index % len(COLOURS)]
        if found:
            error = [[found[0] - found[1]], [found[2] - found[0]]]
            hatch = HATCHES[index % len(HATCHES)]
            axes.bar(x, found[0], width * 0.9, yerr=error, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
        else:
            word = WORDS.get(here[0]["status"], here[0]["status"]) if here else "not run"
            axes.text(x, 0, f" {word}", rotation=90, ha="center", va="bottom", color=colour, fontsize=6)


def _memory(records: Sequence[Record], styles: Styles) -> Any:
    """Over length: a panel for each block pattern, as the size of its blocks matters, and one for all masks made of bands. Nothing where
    no memory was counted."""
    known = [
        record if record["sparse"] else record | {"mask": ALL} for record in records if record["status"] == "ok" and record.get("peak_gib")
    ]
    if not known:
        return None
    shown = {line: styles[line] for line in _timed(known)}
    figure = _panels(known, lambda axes, own: _memory_over_length(axes, own, shown), same_scale=True)
    figure.supylabel("GiB beyond the inputs over tokens")
    _legend(figure, shown, _without(records, shown))
    return figure


def _memory_over_length(axes: Any, records: Sequence[Record], styles: Styles) -> None:
    from matplotlib.ticker import LogLocator

    for line, index in styles.items():
        most: dict[int, float] = {}
        for record in records:
            if record["line"] == line:
                most[record["seqlen"]] = max(most.get(record["seqlen"], 0.0), record["peak_gib"])
        places = sorted(most)
        axes.plot(places, [most[place] for place in places], **_style(index, line))
    axes.set_yscale("log")  # plain attention takes a hundred times as much as the rest
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    _length_axis(axes, sorted({record["seqlen"] for record in records}))


def _legend(figure: Any, styles: Styles, *notes: str, bars: bool = False) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], **_style(index, line)) for line, index in styles.items()]
    if bars:
        pairs = [(COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)]) for i in styles.values()]
        handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white") for colour, hatch in pairs]
    columns, names = min(int(0.6 * figure.get_figwidth()), len(styles)), [_plain(line) for line in styles]
    width = int(16 * figure.get_figwidth())  # letters that fit side by side
    title = "\n".join(_plain(line) for note in notes for line in wrap(note, width)) or None
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, title=title, title_fontsize=8)
