"""A heat map kernel × mask: the share of the device's peak at the longest length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from longca.report.figures.sheet import LETTER, Drawing, Layout, sheet, without
from longca.report.figures.style import GREY, plain
from longca.results.naming import Contest, Row
from longca.results.points import grouped, timed_lines
from longca.results.shares import best_share, fastest_speeds, longest_timed, peak_known
from longca.results.statuses import LETTER_WORDS, LETTERS, explaining
from longca.results.tables import format_share
from longca.text import format_size

CELL = 0.24  # height of a row in inches
PEAK = "At the longest length of each mask, as a share of what the device can do at most."
FASTEST = "At the longest length of each mask, as a share of the fastest kernel's: the peak of this device is not known."
SEEDS = "Of several seeds, all work over all time."
EXPLAINED = LETTER_WORDS | {"=": "measured only where the mask is the same as a simpler one"}


def share_of_peak(drawing: Drawing) -> Any:
    """Masks down and kernels across; a letter where there is no time. A single cell would say what its bar does."""
    longest = longest_timed(drawing.rows)
    own = [row for _, group in longest.values() for row in group]
    kernels, masks = timed_lines(own), [f"{mask}, {format_size(seqlen)}" for mask, (seqlen, _) in longest.items()]
    if len(kernels) * len(masks) < 2:
        return None
    known, cells = peak_known(own), grouped(own, lambda row: (row.panel, row.line))
    fastest = None if known else fastest_speeds(own)
    rows = [[_cell(cells.get((mask, kernel), []), fastest) for kernel in kernels] for mask in longest]
    used = {text for row in rows for _, text in row}
    letters = "; ".join(f"{letter} {words}" for letter, words in EXPLAINED.items() if letter in used)
    seeds = SEEDS if len({row.record.seed for row in own}) > 1 else ""
    notes = [PEAK if known else FASTEST, seeds, letters, without(own, kernels)]
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


def _cell(rows: Sequence[Row], fastest: Mapping[Contest, float] | None) -> tuple[float, str]:
    """The share, and what is written there."""
    share, failed = best_share(rows, fastest), explaining(rows)
    if share is not None:
        return share.value, format_share(share.value)
    return math.nan, LETTERS[failed.record.status] if failed else "=" if rows else ""
