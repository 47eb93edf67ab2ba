"""A choice: which kernel runs each pass, why, and what is known of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import msgspec

Source = Literal["only", "records", "trial", "preference"]
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
    """One kernel in one pass: its time in a trial, or its time over that of the fastest in records. `note` says why it has none."""

    kernel: str
    ms: float | None = None
    spread: float | None = None  # half the distance of the quartiles over the median
    slower: float | None = None
    plan_ms: float | None = None
    workspace: int | None = None  # bytes that a backward holds beside inputs and results
    note: str = ""


class Choice(msgspec.Struct, frozen=True):
    """`backward` is empty where no backward is wanted. `why` has a sentence per pass, `options` the kernels that were compared. `part`
    names what a trial timed where that was not the whole call."""

    forward: str
    backward: str
    source: Source
    why: dict[str, str]
    options: dict[str, list[Option]] = {}
    part: str = ""

    @property
    def can_lack_memory(self) -> bool:
        """Whether the chosen kernels may run out of memory while others would not. A trial of the whole call shows that they do not."""
        return self.source != "only" and (self.source != "trial" or bool(self.part))

    @property
    def by_pass(self) -> dict[str, str]:
        """The chosen kernels."""
        return {"fwd": self.forward} | ({"bwd": self.backward} if self.backward else {})
