"""Pictures of document lengths: what share of the documents, and of the tokens, is in documents of each length."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from longca.lengths.shares import Shares
from longca.masks.draw import INK, QUIET, new_figure, save
from longca.text import format_size

COLOURS = ("#1f5fa8", "#b4560a", "#1c6b52", "#5b3a9e", "#9a2a4d")
MARKERS = "os^Dv"


def write_lengths(shares: Mapping[str, Shares], path: str | Path) -> Path:
    """Draws the shares of several distributions, by their names, into a PNG file and returns it."""
    figure = new_figure(11.0, 4.4)
    for place, what in enumerate(("documents", "tokens")):
        axes = figure.add_subplot(1, 2, place + 1)
        for number, (name, share) in enumerate(shares.items()):
            look = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            axes.plot([100 * value for value in share[place]], label=name, linewidth=1.6, markersize=4, **look)
        ends = max(len(share.documents) for share in shares.values())
        axes.set_xticks(range(0, ends, 2), [format_size(1 << n) for n in range(0, ends, 2)])
        axes.set_xlabel("tokens of the document, from", color=QUIET)
        axes.set_title(f"% of all {what}", color=INK, fontsize=11)
        axes.set_ylim(bottom=0)
        axes.grid(color="#e4e3de", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=QUIET, labelsize=8)
    axes.legend(frameon=False, fontsize=9)
    return save(figure, Path(path), dpi=120)
