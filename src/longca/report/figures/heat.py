"""A heat map kernel × mask: the best share of the device's peak."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from longca.report.figures.sheet import LETTER, Drawing, Layout, sheet
from longca.report.figures.style import GREY, plain
from longca.report.measures import best_share, fastest_of_masks, grouped, peak_known, timed
from longca.report.reading import Record
from longca.report.settings import MARKS

CELL = 0.24  # height of a row in inches
PEAK = "Best of all lengths, as a share of what the device can do at most."
FASTEST = "Best of all lengths, as a share of the fastest kernel's: the peak of this device is not known."
LETTERS = {"X": "unsupported or unavailable", "M": "out of memory", "W": "wrong", "T": "timed out", "E": "error"}
LETTERS |= {"=": "measured only where the mask is the same as a simpler one"}


def share_of_peak(drawing: Drawing) -> Any:
    """Masks down and kernels across; a letter where there is no time. A single cell would say what its bar does."""
    kernels, masks = timed(drawing.records), list(grouped(drawing.records, "problem"))
    if len(kernels) * len(masks) < 2:
        return None
    known, cells = peak_known(drawing.records), grouped(drawing.records, "problem", "line")
    fastest = None if known else fastest_of_masks(drawing.records)
    rows = [[_cell(cells.get((mask, kernel), []), fastest) for kernel in kernels] for mask in masks]
    used = {text for row in rows for _, text in row}
    notes = [PEAK if known else FASTEST, ", ".join(f"{letter} {said}" for letter, said in LETTERS.items() if letter in used)]
    left, below = 0.35 + LETTER * max(map(len, masks)), 0.45 + 0.72 * LETTER * max(map(len, kernels))
    width = max(4.5, left + 0.55 * len(kernels) + 0.4)
    layout = Layout(columns=1, height=CELL * len(masks), below=below, left=left, width=width)
    figure = sheet(drawing, [""], ("", ""), [], notes, layout)
    [axes] = figure.axes
    for y, row in enumerate(rows):
        for x, (share, text) in enumerate(row):
            colour = GREY if math.isnan(share) else "white" if share > 0.55 else "black"
            axes.text(x, y, text, ha="center", va="center", fontsize=7, color=colour)
    axes.imshow([[share for share, _ in row] for row in rows], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(masks)), [plain(mask) for mask in masks])
    axes.set_xticks(range(len(kernels)), [plain(kernel) for kernel in kernels], rotation=45, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.grid(visible=False)
    return figure


def _cell(records: Sequence[Record], fastest: Mapping[Any, float] | None) -> tuple[float, str]:
    """The share, and what is written there."""
    failed = sorted((record["status"] for record in records if record["status"] != "ok"), key=lambda status: status != "wrong")
    share = None if "wrong" in failed else best_share(records, fastest)
    if share is not None:
        return share, f"{100 * share:.{int(share < 0.1)}f} %"
    return math.nan, MARKS[failed[0]] if failed else "=" if records else ""
