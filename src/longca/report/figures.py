"""Figures for papers, PNG and PDF: speed over length, grouped bars at the longest length, memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from longca.bench.summary import mask_names
from longca.errors import BadInput
from longca.report.naming import line_names
from longca.report.reading import Record
from longca.report.settings import MARKS, MARKS_EXPLAINED, PASSES, SIMULATED, by_setting, slug, speed_at
from longca.text import format_size

COLOURS = ("#0072b2", "#c44e00", "#007a59", "#b0508a", "#8a6500", "#4d3a9e", "#2b8cbe", "#4a4a48")
DASHES, MARKERS, HATCHES = ("-", "--", ":", "-.", (0, (5, 5))), "os^D", ("", "//", "..", "\\\\", "xx")
COLUMNS = 3
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
    named = [record | {"mask": mask, "line": line} for record, mask, line in names]
    with matplotlib.rc_context(PAPER):
        for setting, group in by_setting(named, environments).items():
            lines = sorted({record["line"] for record in group})
            for which in (name for name in PASSES if any(record["pass"] == name for record in group)):
                own = [record for record in group if record["pass"] == which]
                for kind, draw in (("speed", _speed), ("bars", _bars), ("memory", _memory)):
                    figure = draw(own, lines)
                    if figure is not None:
                        figure.suptitle(_plain(f"{setting}, {which}"))
                        written += _save(figure, Path(folder) / f"{kind}-{slug(which)}-{slug(setting)}")
                        pyplot.close(figure)
    return written


def _save(figure: Any, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "pdf")]
    for path in paths:
        try:
            figure.savefig(path, dpi=200, bbox_inches="tight", metadata={"CreationDate": None} if path.suffix == ".pdf" else None)
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


def _speed(records: Sequence[Record], lines: list[str]) -> Any:
    from matplotlib import pyplot

    masks = list(dict.fromkeys(record["mask"] for record in records))
    rows = -(-len(masks) // COLUMNS)
    figure, grid = pyplot.subplots(rows, COLUMNS, figsize=(10, 2.3 * rows + 0.8), squeeze=False, layout="constrained")
    for axes, mask in zip(grid.flat, masks, strict=False):
        _over_length(axes, [record for record in records if record["mask"] == mask], lines)
        axes.set_title(_plain(mask))
    for axes in grid.flat[len(masks) :]:
        axes.set_visible(False)
    figure.supylabel("TFLOP/s over tokens")
    _legend(figure, lines, title=MARKS_EXPLAINED)
    return figure


def _over_length(axes: Any, records: Sequence[Record], lines: list[str]) -> None:
    lengths = sorted({record["seqlen"] for record in records})
    failed: dict[int, dict[str, list[int]]] = {seqlen: {} for seqlen in lengths}  # which lines have no time there, by their mark
    for index, line in enumerate(lines):
        speeds, errors = [], []
        for seqlen in lengths:
            here = [record for record in records if record["seqlen"] == seqlen and record["line"] == line]
            middle, low, high = speed_at(here) or (math.nan,) * 3  # a line breaks where there is no time
            speeds.append(middle)
            errors.append((middle - low, high - middle))
            if math.isnan(middle) and here:
                failed[seqlen].setdefault(MARKS[here[0]["status"]], []).append(index)
        axes.errorbar(lengths, speeds, list(zip(*errors, strict=True)), **_style(index, line))
    _marks(axes, failed, lines)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, _spaced(lengths))
    axes.set_xlim(lengths[0] / 1.4, lengths[-1] * 1.4)
    axes.minorticks_off()
    top = axes.get_ylim()[1]
    axes.set_ylim(-0.07 * top * max(map(len, failed.values())), top)  # letters get a strip of their own
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])


def _marks(axes: Any, failed: Mapping[int, Mapping[str, list[int]]], lines: list[str]) -> None:
    """A letter where there is no time; several lines with the same one share it, with their number where there is room for that."""
    lengths = list(failed)
    for seqlen, marks in failed.items():
        crowded = any(other != seqlen and _close(seqlen, other, lengths) for other in lengths)
        for row, (mark, indices) in enumerate(marks.items()):
            alone = len(indices) == 1
            colour = _style(indices[0], lines[indices[0]])["color"] if alone else "0.35"
            style = {"color": colour, "ha": "center", "fontsize": 7 if alone else 6, "fontweight": "bold"}
            text, place = mark if alone or crowded else f"{mark}{len(indices)}", (seqlen, 0)
            axes.annotate(text, place, (0, 2 + 8 * row), xycoords=("data", "axes fraction"), textcoords="offset points", **style)


def _close(one: int, other: int, lengths: Sequence[int]) -> bool:
    """Whether two labels would touch: about thirteen fit side by side."""
    return abs(math.log2(one / other)) <= (math.log2(lengths[-1] / lengths[0]) + 1) / 13


def _spaced(lengths: Sequence[int]) -> list[str]:
    """Labels, less those that would run into a kept one: powers of two stay first."""
    kept: list[int] = []
    for seqlen in sorted(lengths, key=lambda n: (n & (n - 1) != 0, -n)):
        if not any(_close(seqlen, other, lengths) for other in kept):
            kept.append(seqlen)
    return [format_size(seqlen) if seqlen in kept else "" for seqlen in lengths]


def _bars(records: Sequence[Record], lines: list[str]) -> Any:
    """Masks side by side at the longest length, a bar per kernel, and a word where there is none."""
    from matplotlib import pyplot

    longest = max(record["seqlen"] for record in records)
    own = [record for record in records if record["seqlen"] == longest]
    masks = list(dict.fromkeys(record["mask"] for record in own))
    figure, axes = pyplot.subplots(figsize=(max(6, 1.3 * len(masks)), 3.4), layout="constrained")
    width = 0.85 / len(lines)
    for index, line in enumerate(lines):
        for place, mask in enumerate(masks):
            here = [record for record in own if record["mask"] == mask and record["line"] == line]
            x, found, colour = place - 0.425 + width * (index + 0.5), speed_at(here), COLOURS[index % len(COLOURS)]
            if found:
                error = [[found[0] - found[1]], [found[2] - found[0]]]
                hatch = HATCHES[index % len(HATCHES)]
                axes.bar(x, found[0], width * 0.9, yerr=error, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
            elif here:
                word = {"oom": "out of memory"}.get(here[0]["status"], here[0]["status"])
                axes.text(x, 0, f" {word}", rotation=90, ha="center", va="bottom", color=colour, fontsize=6)
    axes.set_xticks(range(len(masks)), [_plain(mask).replace("_", "_\n") for mask in masks])
    axes.set_ylabel(f"TFLOP/s at {format_size(longest)}")
    axes.set_xlim(-0.6, len(masks) - 0.4)
    axes.grid(axis="x", visible=False)
    _legend(figure, lines, bars=True)
    return figure


def _memory(records: Sequence[Record], lines: list[str]) -> Any:
    """The most of any mask over length; nothing where no memory was counted."""
    from matplotlib import pyplot

    known = [record for record in records if record["status"] == "ok" and record.get("peak_gib") is not None]
    if not known:
        return None
    lengths = sorted({record["seqlen"] for record in known})
    figure, axes = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
    for index, line in enumerate(lines):
        most: dict[int, float] = {}
        for record in known:
            if record["line"] == line:
                most[record["seqlen"]] = max(most.get(record["seqlen"], 0.0), record["peak_gib"])
        places = sorted(most)
        axes.plot(places, [most[place] for place in places], **_style(index, line))
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, _spaced(lengths))
    axes.minorticks_off()
    axes.set_ylabel("GiB beyond the inputs")
    axes.set_xlabel("tokens")
    _legend(figure, lines)
    return figure


def _legend(figure: Any, lines: list[str], bars: bool = False, title: str | None = None) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Line2D([], [], **_style(index, line)) for index, line in enumerate(lines)]
    if bars:
        pairs = [(COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)]) for i in range(len(lines))]
        handles = [Patch(facecolor=colour, hatch=hatch, edgecolor="white") for colour, hatch in pairs]
    columns, names = min(6, len(lines)), [_plain(line) for line in lines]
    figure.legend(handles, names, loc="outside lower center", ncols=columns, frameon=False, title=title, title_fontsize=8)
