"""`longca.compare` and `longca.history`: what changed between two journals or over many, or how one kernel of a journal stands."""

from __future__ import annotations

import math
from typing import Any

from longca.api.journals import folder_of, folders_of
from longca.compare import history as histories
from longca.compare import journals
from longca.compare.history import History
from longca.compare.journals import Comparison
from longca.compare.standing import KernelStanding, standing
from longca.compare.verdicts import PRACTICAL
from longca.errors import BadInput
from longca.results.reading import read


def compare(
    a: Any, b: Any = None, *, kernel: str | None = None, threshold: float | str = PRACTICAL, force: bool = False
) -> Comparison | KernelStanding:
    """Compares journal `b` with journal `a` and returns a verdict per cell: SLOWER, FASTER, SAME, UNCLEAR, BROKEN, MENDED or UNMEASURED. If
    `kernel` is given in place of `b`, compares that kernel of `a` with the best other kernel on each mask.

    Journals are folders that a run wrote, or results of `longca.run`. Changes below `threshold` are ignored. `force` compares journals even
    if devices, threads, clock settings, power limits or clocks differ.

    >>> longca.compare("out/before", "out/after").ok
    """
    if (b is None) == (kernel is None):
        raise BadInput("give two folders A and B; or one folder and --kernel NAME, to compare that kernel with the others in it.")
    if kernel is not None:
        return standing(read(folder_of(a)), kernel, folder_of(a))
    return journals.compare(folder_of(a), folder_of(b), parse_threshold(threshold), force)


def history(*journals: Any, threshold: float | str = PRACTICAL, force: bool = False) -> History:
    """Returns the times of each cell in each of these journals, in the given order, and the steps between plateaus.

    A folder that contains journals means all of them, in the order of their names. Changes below `threshold` are not steps.

    >>> longca.history("bench/history").ok
    """
    return histories.history(folders_of(journals), parse_threshold(threshold), force)


def parse_threshold(threshold: float | str) -> float:
    """A share of the time: 0.03, "0.03" or "3%"."""
    text = str(threshold).strip()
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise BadInput(f"--threshold {threshold!r} is not understood; write a share of the time such as 3% or 0.03.")
    return value
