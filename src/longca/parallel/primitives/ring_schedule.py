"""Who holds whose keys when, in a ring of R ranks that may be cut into W windows; a plain ring is one window.

At visit (a, b) rank (x, y), window x and place y in it, holds the keys of rank (x - a, y - b): they go round inside a window and, once
per round, from window to window. What is sent is decided here, from the areas of the mask alone, so both ends agree: keys are not sent
on when nobody further down sees them, and their gradient goes straight home from the last rank that adds to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from longca.masks import AnyMask
from longca.parallel.cuts import areas_of, once_for_all_ranks
from longca.parallel.ranges import Shards

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
    """The paths of all blocks; visits are numbered a * (R/W) + b. areas[r, o] is what rank r's queries see of rank o's keys."""

    def __init__(self, areas: NDArray[np.int64], windows: int = 1) -> None:
        self.size, self.windows = len(areas), windows
        self.window = self.size // windows
        owner, visit = np.ogrid[: self.size, : self.size]
        holders = self._moved(owner, visit, 1)
        seen = areas[holders, owner] > 0
        self.holders: list[list[int]] = holders.tolist()  # [owner][visit]
        self.owners: list[list[int]] = self._moved(owner, visit, -1).tolist()  # [holder][visit]
        later = np.logical_or.accumulate(seen[:, ::-1], 1)[:, ::-1]
        in_rounds = seen.reshape(self.size, windows, self.window)
        later_in_round = np.logical_or.accumulate(in_rounds[:, :, ::-1], 2)[:, :, ::-1]
        # whether a block is moved into the window of a visit, the first of a round; and on inside its window, to a visit of this round
        self.goes_outside: list[list[bool]] = later.tolist()
        self.goes_inside: list[list[bool]] = later_in_round.reshape(self.size, self.size).tolist()
        others = seen & (visit > 0)  # after the owner's own visit
        some = others.any(1)
        first, last = others.argmax(1), self.size - 1 - others[:, ::-1].argmax(1)
        # the first and the last visit that add to the gradient of a block; (1, 0) where none does
        self.adders: list[tuple[int, int]] = list(zip(np.where(some, first, 1).tolist(), np.where(some, last, 0).tolist(), strict=True))

    def _moved(self, rank: NDArray[np.int64], visit: NDArray[np.int64], sign: int) -> NDArray[np.int64]:
        """The rank that is as far away as a block moves until this visit."""
        x, y = (rank // self.window + sign * (visit // self.window)), (rank % self.window + sign * (visit % self.window))
        return x % self.windows * self.window + y % self.window

    def carried(self, owner: int, visit: int) -> bool:
        """Whether a gradient passes from this visit to the next one."""
        first, last = self.adders[owner]
        return first <= visit < last

    def visits(self, rank: int) -> list[Visit]:
        """The visits of one rank, in order."""
        visits = []
        for visit in range(self.size):
            ends_round = (visit + 1) % self.window == 0
            opens_round = visit % self.window == 0 and visit + self.window < self.size
            inner = Hop() if ends_round else self._hop(rank, visit, visit + 1, self.goes_inside)
            outer = self._hop(rank, visit, visit + self.window, self.goes_outside) if opens_round else Hop()
            visits.append(Visit(self.owners[rank][visit], inner, outer, ends_round, self._gradient(rank, visit)))
        return visits

    def _hop(self, rank: int, now: int, then: int, goes: list[list[bool]]) -> Hop:
        mine, next_owner = self.owners[rank][now], self.owners[rank][then]
        to = self.holders[mine][then] if goes[mine][then] else NOBODY
        if not goes[next_owner][then]:
            return Hop(to)
        return Hop(to, self.holders[next_owner][now], next_owner)

    def _gradient(self, rank: int, visit: int) -> GradientHop:
        if visit == 0:  # the owner's own part stays with the owner
            return GradientHop()
        owner = self.owners[rank][visit]
        to = owner if visit == self.adders[owner][1] else self.holders[owner][visit + 1] if self.carried(owner, visit) else NOBODY
        home_from = self.holders[rank][visit] if self.adders[rank][1] == visit else NOBODY
        if visit + 1 < self.size and self.carried(coming := self.owners[rank][visit + 1], visit):
            return GradientHop(to, self.holders[coming][visit], coming, home_from)
        return GradientHop(to, home_from=home_from)


@once_for_all_ranks
def rounds_of(mask: AnyMask, rows: Shards, keys: Shards, windows: int) -> Rounds:
    """The paths of keys that visit the rows that see them."""
    return Rounds(areas_of(mask, rows, keys), windows)


@once_for_all_ranks
def query_rounds_of(mask: AnyMask, shards: Shards, windows: int) -> Rounds:
    """The paths of queries that visit the keys that they see."""
    return Rounds(areas_of(mask, shards, shards).T, windows)
