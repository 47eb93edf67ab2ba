"""Pictures of masks: shades in a terminal, PNG files, and the gallery. All are drawn from areas, so any length works."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from longca.errors import BadInput
from longca.text import format_size

if TYPE_CHECKING:
    from longca.masks import AnyMask

Shades = NDArray[np.float64]
PIXELS = 512  # of one mask in a PNG
HEAD_COLUMNS, MOST_HEADS = 36, 8  # in a terminal: characters of one head of several, and how many heads are drawn
SURFACE, INK, QUIET = "#fcfcfb", "#1a1a19", "#6b6a66"
GROUPS = {
    "regular": "#1f5fa8",
    "irregular": "#8a4b08",
    "more": "#1c6b52",
    "dynamic": "#5b3a9e",
}  # titles; told apart without colour by their order
GALLERY_PARAMS: dict[str, dict[str, Any]] = {  # where the defaults show little at the gallery's usual length
    "chunked_causal": {"c": 2048},
    "dilated_window_causal": {"n": 8, "d": 4},
    "sink_window_causal": {"s": 256},
    "uniform_block": {"b": 128, "ratio": 0.2},
    "variable_block": {"avg": 512, "ratio": 0.2},
}
GALLERY_LONGEST = {"dilated_window_causal": 64}  # tokens, beyond which its single keys are too faint to be seen


def shades(mask: AnyMask, rows: int, columns: int) -> Shades:
    """How much of each cell of a grid is visible, 0 to 1, [heads, rows, columns]; never more cells than tokens."""
    row_edges, column_edges = _edges(mask.seqlen_q, rows), _edges(mask.seqlen_k, columns)
    row_shards, column_shards = ([[pair] for pair in np.stack([e[:-1], e[1:]], 1).tolist()] for e in (row_edges, column_edges))
    areas = np.stack([mask.take_heads([head]).pair_areas(row_shards, column_shards) for head in range(mask.heads)])
    return np.asarray(areas / np.maximum(1, np.outer(np.diff(row_edges), np.diff(column_edges))))


def _edges(length: int, parts: int) -> NDArray[np.int64]:
    parts = max(1, min(parts, length))
    return np.arange(parts + 1, dtype=np.int64) * length // parts


# -- terminal ------------------------------------------------------------------------------------------------------------------


def terminal_picture(mask: AnyMask, width: int | None = None) -> str:
    """The mask in characters and a line of facts under it. Heads stand side by side; of many the first ones are drawn."""
    room = width or shutil.get_terminal_size().columns - 2
    if mask.heads == 1:
        return "\n".join([*_framed(_characters(mask, min(room, 72))[0]), facts(mask)])
    per_row = max(1, min((room + 4) // (HEAD_COLUMNS + 4), mask.heads))
    shown = mask.take_heads(range(min(mask.heads, MOST_HEADS)))
    drawn = [_framed(picture) for picture in _characters(shown, min((room + 4) // per_row - 4, HEAD_COLUMNS))]
    lines = []
    for first in range(0, len(drawn), per_row):
        row = drawn[first : first + per_row]
        titles = [f"head {first + place}".ljust(len(row[0][0])) for place in range(len(row))]
        lines += ["  ".join(line).rstrip() for line in (titles, *zip(*row, strict=True))]
    if len(drawn) < mask.heads:
        lines.append(f"and {mask.heads - len(drawn)} more heads: --png draws all, --json lists their blocks")
    return "\n".join([*lines, facts(mask)])


def _characters(mask: AnyMask, columns: int) -> Shades:
    """A shade per character, [heads, lines, columns]."""
    doubled = 2 * mask.seqlen_k <= columns  # a character is about twice as high as wide, so a token of a short mask gets two
    columns = mask.seqlen_k if doubled else min(columns, mask.seqlen_k)
    drawn = shades(mask, columns if doubled else columns // 2, columns)
    return drawn.repeat(2, axis=2) if doubled else drawn


def _framed(picture: Shades) -> list[str]:
    fancy = _can_print("░▒▓█┌")
    ramp = np.array(list(" ░▒▓█" if fancy else " .:*#"))
    level = np.where(picture >= 1, 4, np.where(picture > 0, 1 + np.minimum(picture * 3, 2).astype(int), 0))
    (left, top, right), side, (low_left, low_right) = ("┌─┐", "│", "└┘") if fancy else ("+-+", "|", "++")
    edge = top * level.shape[1]
    return [left + edge + right, *(side + "".join(row) + side for row in ramp[level]), low_left + edge + low_right]


def _can_print(characters: str) -> bool:
    try:
        characters.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def facts(mask: AnyMask) -> str:
    """One line: what it is, how much is visible, and the digest that names exactly these pairs."""
    parts = [f"{mask.name or 'mask'}", f"{format_size(mask.seqlen_q)} token{'s' if mask.seqlen_q > 1 else ''}"]
    if mask.seqlen_q != mask.seqlen_k:
        parts[-1] = f"{format_size(mask.seqlen_q)} queries, {format_size(mask.seqlen_k)} keys"
    parts += [f"{name}={value}" for name, value in {**source_of(mask), **mask.params}.items()]
    if mask.documents:
        plural = "s" if len(mask.documents) > 1 else ""
        parts.append(f"{len(mask.documents)} document{plural} of {min(mask.documents)} to {max(mask.documents)}")
    return "  ".join([*parts, f"area {mask.area}", f"density {mask.density:.4f}", f"digest {mask.digest}"])


def source_of(mask: AnyMask) -> dict[str, str]:
    """Where a block pattern comes from, unless it is random."""
    source = getattr(mask, "source", "")
    return {"source": source} if source not in ("", "random") else {}


# -- files ---------------------------------------------------------------------------------------------------------------------


def write_png(mask: AnyMask, path: str | Path) -> Path:
    """One mask as a PNG, a panel per head; many heads get smaller ones."""
    many = mask.heads > 8
    pictures = shades(mask, PIXELS // (1 + many), PIXELS // (1 + many))
    columns = min(len(pictures), 8 if many else 4)
    rows, inches = -(-len(pictures) // columns), 2.6 if many else 5.2
    figure = new_figure(inches * columns, (inches + 0.4) * rows)
    for head, picture in enumerate(pictures):
        axes = figure.add_subplot(rows, columns, head + 1)
        _panel(axes, picture, mask.seqlen_q, mask.seqlen_k)
        axes.set_xlabel("key", color=QUIET)
        axes.set_ylabel("query", color=QUIET)
        if mask.heads > 1:
            axes.set_title(f"head {head}", color=QUIET, fontsize=10)
    settings = ", ".join(f"{name}={value}" for name, value in {**source_of(mask), **mask.params}.items())
    figure.suptitle(f"{mask.name} · {format_size(mask.seqlen_q)} tokens · density {mask.density:.3f}", color=INK, fontsize=13)
    if settings:
        figure.supxlabel(settings, color=QUIET, fontsize=9)
    return save(figure, Path(path), dpi=120)


def write_gallery(folder: str | Path, seqlen: int, seed: int) -> Path:
    """All masks in one picture."""
    from longca.masks import block_names, build, find, more_names, names

    drawn = [*names(), *more_names(), *block_names()]
    rows, columns = -(-(len(drawn) + 1) // 7), 7  # one place more, for the legend
    figure = new_figure(16.8, 2.8 * rows)
    for place, name in enumerate(drawn):
        length = min(seqlen, GALLERY_LONGEST.get(name, seqlen))
        mask = build(name, length, seed=seed, **GALLERY_PARAMS.get(name, {}))
        axes = figure.add_subplot(rows, columns, place + 1)
        _panel(axes, shades(mask, 200, 200)[0], length, length)
        axes.set_title(name, color=GROUPS[find(name).group], fontsize=9, fontweight="bold", pad=16)
        axes.text(0.5, 1.025, f"density {mask.density:.3f}", transform=axes.transAxes, ha="center", color=QUIET, fontsize=9)
    _legend(figure.add_subplot(rows, columns, len(drawn) + 1), seqlen, seed)
    return save(figure, Path(folder) / "masks.png", dpi=90)


def _legend(axes: Any, seqlen: int, seed: int) -> None:
    axes.set_axis_off()
    lines = [(f"{format_size(seqlen)} tokens, seed {seed}", INK), ("rows are queries, columns keys;", QUIET), ("dark is visible", QUIET)]
    lines += list(GROUPS.items())
    for line, (text, colour) in enumerate(lines):
        weight = "bold" if text in GROUPS else "normal"
        axes.text(0.04, 0.82 - 0.13 * line, text, color=colour, fontsize=10.5, fontweight=weight, transform=axes.transAxes)


def new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # no pyplot: no window system, no state kept between pictures

    return Figure(figsize=(width, height), layout="constrained", facecolor=SURFACE)


def _panel(axes: Any, picture: Shades, seqlen_q: int, seqlen_k: int) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    # one hue from light to dark reads the same for every kind of colour vision, and in print
    ramp = LinearSegmentedColormap.from_list("visible", ["#eef1f5", "#9dbbdc", "#3d7cc0", "#123c70"])
    axes.imshow(picture, cmap=ramp, vmin=0, vmax=1, extent=(0, seqlen_k, seqlen_q, 0), aspect="auto", interpolation="nearest")
    frame_axes(axes, seqlen_q, seqlen_k)


def frame_axes(axes: Any, seqlen_q: int, seqlen_k: int) -> None:
    """Makes a square panel of queries, from top to bottom, and keys."""
    from matplotlib.ticker import FixedLocator

    axes.set(xlim=(0, seqlen_k), ylim=(seqlen_q, 0))
    axes.set_box_aspect(1)
    for axis, length in ((axes.xaxis, seqlen_k), (axes.yaxis, seqlen_q)):
        ticks = [0, length // 2, length] if length > 1 else [0, length]
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_ticklabels([format_size(tick) for tick in ticks])
    axes.tick_params(colors=QUIET, labelsize=8, length=2)
    for spine in axes.spines.values():
        spine.set_color("#c9c8c3")


def save(figure: Any, path: Path, dpi: int) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi, facecolor=SURFACE, format="png")
    except OSError as error:
        raise BadInput(f"cannot write {path}: {error.strerror or error}.") from error
    return path
