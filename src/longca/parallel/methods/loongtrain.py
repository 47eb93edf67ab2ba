"""loongtrain: usp with a double ring, whose slow transfers between windows have a whole round of time."""

from __future__ import annotations

from longca.parallel.methods.usp import Usp
from longca.parallel.options import WINDOWS


class LoongTrain(Usp):
    name = "loongtrain"
    about = "usp with a double ring: keys rotate inside windows, and between windows once per round"
    needs = "a grid UxRxW with U·R ranks, at least U query heads, and W a divisor of R"
    order = 50
    has_windows, options = True, (WINDOWS,)
