"""A picture of what a mask allows, what the model sees, and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longca.probe.probe import Probed

COLOURS = ["#fcfcfb", "#1f5fa8", "#c0392b", "#e69f00", "#c9c8c4"]  # not seen, seen, leak, blind, unclear


def write_picture(results: Sequence[Probed], path: str | Path) -> Path:
    """Draws a row of three panels per number of ranks; columns are the probed tokens."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(10, 3.4 * len(results) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(results), 3, squeeze=False)
    colours = ListedColormap(COLOURS)
    for line, result in zip(axes, results, strict=True):
        unclear = np.isnan(result.seen)
        seen = np.where(unclear, 4, result.seen)
        difference = np.where(unclear, 4, np.where(result.expected == (result.seen > 0), 0, np.where(result.seen > 0, 2, 3)))
        for axis, title, cells in zip(
            line, ("allowed", "seen", "difference"), (result.expected.astype(int), seen, difference), strict=True
        ):
            axis.imshow(cells, cmap=colours, vmin=-0.5, vmax=4.5, aspect="auto", interpolation="nearest")
            axis.set_title(f"{title}, {result.ranks} rank{'s' if result.ranks > 1 else ''}", fontsize=9, loc="left")
            places = np.linspace(0, len(result.probes) - 1, min(6, len(result.probes))).astype(int)
            axis.set_xticks(places, [str(result.probes[place]) for place in places], fontsize=7)
            axis.tick_params(axis="y", labelsize=7)
            axis.set_xlabel("changed token", fontsize=8)
        line[0].set_ylabel("output of row", fontsize=8)
    names = ("seen", "leak", "blind or not reached", "unclear")
    figure.legend(
        handles=[Patch(color=c, label=n) for c, n in zip(COLOURS[1:], names, strict=True)], ncols=4, fontsize=8, loc="outside lower center"
    )
    path = Path(path)
    figure.savefig(path, dpi=110, format="png")
    return path
