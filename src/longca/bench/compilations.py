"""torch.compile keeps what it made for every shape of inputs and of masks, and stops after a number of graphs: it forgets before that."""

from __future__ import annotations

import sys
from typing import Any

MOST_GRAPHS = 32  # each may be compiled again, with and without gradients; flex stops at 64


class Compilations:
    """Of this process. Graphs are counted by torch itself: nobody else knows what it compiles again for."""

    def __init__(self) -> None:
        self._forgotten = 0

    def limit(self) -> None:
        dynamo: Any = sys.modules.get("torch._dynamo")
        if dynamo is None:
            return
        made = dynamo.utils.counters["stats"]["unique_graphs"]
        if made - self._forgotten > MOST_GRAPHS:
            dynamo.reset()
            self._forgotten = made
