"""A picture of a mask in which each band is a shape of its own, with its six numbers: `longca mask NAME --bands --png FILE`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from longca.errors import BadInput
from longca.masks.draw import INK, QUIET, frame_axes, new_figure, save
from longca.masks.mask import Mask
from longca.text import format_size

MOST_BANDS = 2000  # that a picture shows
MOST_LABELS = 16  # more would lie on top of each other
KINDS = {
    (0, 0): ("rectangle", "#9dbbdc"),
    (0, 1): ("causal", "#e6b97e"),
    (1, 0): ("inverse causal", "#a9cfa4"),
    (1, 1): ("stripe", "#c9a9d6"),
}


def write_bands(mask: Mask, path: str | Path) -> Path:
    """Draws the bands of a mask, coloured by their slopes (a, b), into a PNG file; few bands are labelled."""
    from matplotlib.patches import Patch, Polygon

    bands = mask.bands
    if len(bands.q0) > MOST_BANDS:
        raise BadInput(
            f"--bands draws up to {MOST_BANDS} bands, and this mask has {len(bands.q0)}; leave it out, or give a shorter --seqlen."
        )
    figure = new_figure(7.4, 5.6)
    axes = figure.add_subplot(1, 1, 1)
    frame_axes(axes, mask.seqlen_q, mask.seqlen_k)
    for q0, q1, lo, a, hi, b in np.stack(bands, 1).tolist():
        height = q1 - q0
        corners = [(lo, q0), (hi, q0), (hi + b * height, q1), (lo + a * height, q1)]
        axes.add_patch(Polygon(corners, facecolor=KINDS[a, b][1], edgecolor=INK, linewidth=0.8))
        if len(bands.q0) <= MOST_LABELS:
            middle = (lo + hi + (a + b) * height / 2) / 2
            numbers = ", ".join(format_size(number) for number in (q0, q1, lo, a, hi, b))
            narrow = 90 if hi - lo + (b - a) * height / 2 < mask.seqlen_k / 4 < height else 0
            axes.text(middle, (q0 + q1) / 2, f"({numbers})", ha="center", va="center", fontsize=7.5, color=INK, rotation=narrow)
    handles = [Patch(facecolor=colour, edgecolor=INK, label=f"({a}, {b}) {kind}") for (a, b), (kind, colour) in KINDS.items()]
    figure.legend(handles=handles, title="slopes (a, b)", loc="outside right upper", fontsize=9, frameon=False)
    axes.set_xlabel("key", color=QUIET)
    axes.set_ylabel("query", color=QUIET)
    title = " ".join([mask.name, *(f"{name}={format_size(value)}" for name, value in mask.params.items() if isinstance(value, int))])
    axes.set_title(f"{title}: bands (q0, q1, lo, a, hi, b)", color=INK, fontsize=10)
    return save(figure, Path(path), dpi=120)
