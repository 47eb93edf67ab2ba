"""How ranks are laid out: U ranks that split heads, R ranks in a ring, W windows of that ring."""

from __future__ import annotations

import re
from dataclasses import dataclass

from longca.errors import BadInput

FRAMEWORK = True


def divisors(number: int) -> list[int]:
    return [divisor for divisor in range(1, number + 1) if number % divisor == 0]


@dataclass(frozen=True)
class Grid:
    """Rank = ring position * U + head position: the ranks that exchange heads are neighbours, so they lie in one node."""

    heads: int
    ring: int
    windows: int = 1

    def __post_init__(self) -> None:
        if min(self.heads, self.ring, self.windows) < 1 or self.ring % self.windows:
            raise BadInput(f"the grid {self} makes no sense; write UxR or UxRxW with W a divisor of R, such as 2x4x2.")

    @classmethod
    def parse(cls, text: str) -> Grid:
        if not re.fullmatch(r"\d+x\d+(x\d+)?", text.strip()):
            raise BadInput(f"{text!r} is not a grid; write UxR or UxRxW, such as 2x4 or 2x4x2.")
        return cls(*map(int, text.strip().split("x")))

    def __str__(self) -> str:
        return f"{self.heads}x{self.ring}" + (f"x{self.windows}" if self.windows > 1 else "")

    @property
    def ranks(self) -> int:
        return self.heads * self.ring

    def head_position(self, rank: int) -> int:
        return rank % self.heads

    def ring_position(self, rank: int) -> int:
        return rank // self.heads

    def head_group(self, rank: int) -> list[int]:
        """The ranks that hold the same tokens after heads are split."""
        first = rank - self.head_position(rank)
        return list(range(first, first + self.heads))

    def ring_group(self, rank: int) -> list[int]:
        """The ranks that hold the same heads."""
        return [position * self.heads + self.head_position(rank) for position in range(self.ring)]


def default_heads(ranks: int, heads_q: int, ranks_per_node: int) -> int:
    """The largest divisor of N that fits the heads and the node."""
    return max(divisor for divisor in divisors(ranks) if divisor <= min(heads_q, ranks_per_node))


def default_windows(ring: int) -> int:
    """The largest divisor W of R with W <= R/W."""
    return max(divisor for divisor in divisors(ring) if divisor * divisor <= ring)
