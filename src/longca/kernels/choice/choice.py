"""A choice: which kernel runs each pass, by which source, and what is known of the others. `words.py` makes sentences of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec

Source = Literal["records", "autotuning", "preference"]
Obstacle = Literal["", "deterministic", "ranks", "graph", "torch.func", "long", "memory"]  # why it was not autotuned; "": no need
TIE = 0.01  # relative difference up to which the times of two kernels count as equal
Timed = TypeVar("Timed")


def fastest(timed: Iterable[Timed], time: Callable[[Timed], float], cost: Callable[[Timed], Any]) -> Timed:
    """Returns the fastest; of several that count as equal that of the least cost, such as workspace."""
    everyone = list(timed)
    least = min(map(time, everyone))
    return min((one for one in everyone if is_tie(time(one), least)), key=cost)


def is_tie(time: float, least: float) -> bool:
    """Whether a time counts as equal to the least."""
    return time <= least * (1 + TIE)


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel in one pass: its time in autotuning, or its time over that of the fastest in records. `note` says why it has none."""

    kernel: str
    ms: float | None = None
    slower: float | None = None
    note: str = ""


class Choice(msgspec.Struct, frozen=True):
    """`backward` is empty where no backward is wanted. `options` are the kernels that were compared, by pass."""

    forward: str
    backward: str
    source: Source
    options: dict[str, list[Option]] = {}
    obstacle: Obstacle = ""

    @property
    def by_pass(self) -> dict[str, str]:
        """The chosen kernels."""
        return {"fwd": self.forward} | ({"bwd": self.backward} if self.backward else {})
