"""Who holds whose keys when, in a ring of R ranks that may be cut into W windows; a plain ring is one window.

At visit (a, b) rank (x, y), window x and place y in it, holds the keys of rank (x - a, y - b): they go round inside a window and, once
per round, from window to window. What is sent is decided here, from the areas of the mask alone, so both ends agree: keys are not sent
on when nobody further down sees them, and their gradient goes straight home from the last rank that adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NOBODY = -1


class Hop(NamedTuple):
    """One exchange: send what I hold to `to`, receive the keys of `owner` from `source`; NOBODY where there is nothing to do."""

    to: int = NOBODY
    source: int = NOBODY
    owner: int = NOBODY


class GradientHop(NamedTuple):
    """After a visit: where the gradient that I hold goes, from where `owner`'s comes to me, and from whom my own comes home."""

    to: int = NOBODY
    source: int = NOBODY
    owner: int = NOBODY
    home_from: int = NOBODY


@dataclass(frozen=True)
class Visit:
    owner: int
    inner: Hop  # inside the window, posted now and needed at the next visit
    outer: Hop  # between windows, posted now and needed when this window's round is over
    ends_round: bool
    gradient: GradientHop


class Rounds:
    """The paths of all blocks; visits are numbered a * (R/W) + b."""

    def __init__(self, areas: NDArray[np.int64], windows: int) -> None:
        self.size, self.windows = len(areas), windows
        self.window = self.size // windows
        self.seen = np.array([[areas[self.holder(owner, visit), owner] > 0 for visit in range(self.size)] for owner in range(self.size)])

    def holder(self, owner: int, visit: int) -> int:
        (x, y), (a, b) = divmod(owner, self.window), divmod(visit, self.window)
        return (x + a) % self.windows * self.window + (y + b) % self.window

    def owner(self, holder: int, visit: int) -> int:
        (x, y), (a, b) = divmod(holder, self.window), divmod(visit, self.window)
        return (x - a) % self.windows * self.window + (y - b) % self.window

    def goes_inside(self, owner: int, visit: int) -> bool:
        """Whether a block is moved on inside its window to this visit: somebody from here to the end of the round sees it."""
        end = (visit // self.window + 1) * self.window
        return bool(self.seen[owner, visit:end].any())

    def goes_outside(self, owner: int, visit: int) -> bool:
        """Whether a block is moved into the window of this visit, the first of a round."""
        return bool(self.seen[owner, visit:].any())

    def adders(self, owner: int) -> tuple[int, int]:
        """The first and the last visit, after the owner's own, that add to the gradient of a block; (1, 0) where none does."""
        visits = np.flatnonzero(self.seen[owner, 1:]) + 1
        return (int(visits[0]), int(visits[-1])) if len(visits) else (1, 0)

    def carried(self, owner: int, visit: int) -> bool:
        """Whether a gradient passes from this visit to the next one."""
        first, last = self.adders(owner)
        return first <= visit < last


def schedule(areas: NDArray[np.int64], rank: int, windows: int = 1) -> list[Visit]:
    """The visits of one rank, in order. areas[r, o] is what rank r's queries see of rank o's keys."""
    rounds = Rounds(areas, windows)
    visits = []
    for visit in range(rounds.size):
        ends_round = (visit + 1) % rounds.window == 0
        opens_round = visit % rounds.window == 0 and visit + rounds.window < rounds.size
        inner = Hop() if ends_round else _hop(rounds, rank, visit, visit + 1, rounds.goes_inside)
        outer = _hop(rounds, rank, visit, visit + rounds.window, rounds.goes_outside) if opens_round else Hop()
        visits.append(Visit(rounds.owner(rank, visit), inner, outer, ends_round, _gradient(rounds, rank, visit)))
    return visits


def _hop(rounds: Rounds, rank: int, now: int, then: int, goes: Callable[[int, int], bool]) -> Hop:
    mine, next_owner = rounds.owner(rank, now), rounds.owner(rank, then)
    to = rounds.holder(mine, then) if goes(mine, then) else NOBODY
    if not goes(next_owner, then):
        return Hop(to)
    return Hop(to, rounds.holder(next_owner, now), next_owner)


def _gradient(rounds: Rounds, rank: int, visit: int) -> GradientHop:
    if visit == 0:  # the owner's own part stays with the owner
        return GradientHop()
    owner = rounds.owner(rank, visit)
    _, last = rounds.adders(owner)
    to = owner if visit == last else rounds.holder(owner, visit + 1) if rounds.carried(owner, visit) else NOBODY
    home_from = rounds.holder(rank, visit) if rounds.adders(rank)[1] == visit else NOBODY
    if visit + 1 < rounds.size and rounds.carried(coming := rounds.owner(rank, visit + 1), visit):
        return GradientHop(to, rounds.holder(coming, visit), coming, home_from)
    return GradientHop(to, home_from=home_from)
