"""Who is given up: what breaks its worker three times in a row is not tried again in that run.

Counted are variants, not kernels: one that crashes says nothing of its siblings. Which one a bare name means is known only when the
worker has chosen, so the worker is told what is given up, too.
"""

from __future__ import annotations

from typing import NamedTuple

from longca.processes.lost import ChildLost

STRIKES = 3  # broken workers in a row


class Suspect(NamedTuple):
    """A kernel as asked for, or as chosen, and whether a backward was asked for: its forward may be fine."""

    label: str
    grad: bool


class Strikes:
    def __init__(self) -> None:
        self._counts: dict[Suspect, int] = {}
        self._last_words: dict[Suspect, ChildLost] = {}

    def broke(self, suspect: Suspect, how: ChildLost) -> None:
        self._counts[suspect] = self._counts.get(suspect, 0) + 1
        self._last_words[suspect] = how

    def answered(self, suspect: Suspect) -> None:
        self._counts.pop(suspect, None)

    def given_up(self) -> dict[Suspect, ChildLost]:
        """With what their cells end as."""
        words = f"not tried, its worker broke {STRIKES} times in a row; the last time"
        lasts = {suspect: self._last_words[suspect] for suspect, count in self._counts.items() if count >= STRIKES}
        return {suspect: ChildLost(last.status, f"{words}: {last.reason}") for suspect, last in lasts.items()}
