"""Settings that a run has and its environment records: when the clock stops, and how long a step may take."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

Seconds = Annotated[float, Meta(gt=0, le=1e7)]
SecondsOrNone = Annotated[float, Meta(ge=0, le=1e7)]
Samples = Annotated[int, Meta(ge=1, le=1_000_000)]
LONG_MS = 20.0  # calls beyond it need half of the samples
ENOUGH = 9  # samples, from which on the interval of their median leaves out the least and the greatest
EXTENSION = 4  # times the budget, for calls so long that it does not suffice for enough samples
LAST_S, FEWEST = 20.0, 3  # after so many seconds, so few samples end it
SAMPLE_LENGTH = 2048  # tokens of a mask that kernels are asked about: it has several documents, and a window hides something


class ClockSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When to stop sampling: with `least` samples or more (half of them for calls of over `LONG_MS`), spread over `warmup_s` or more, as
    soon as the median is known to `target` (the relative half width of its interval) and samples no longer move; with `ENOUGH` or more
    when the budget is spent; with `least` or more after `EXTENSION` budgets, with `FEWEST` after `LAST_S`; or with `most` samples."""

    warmup_s: SecondsOrNone = 0.1
    budget_s: Seconds = 0.5
    target: Annotated[float, Meta(gt=0, le=1)] = 0.005
    least: Samples = 10
    most: Samples = 200
    energy_s: SecondsOrNone = 0.0  # how long to repeat the call for its energy; 0: not at all

    def __post_init__(self) -> None:
        if self.most < self.least:
            raise ValueError(f"the clock needs least <= most, not least={self.least} and most={self.most}")


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds that a step of a cell may take before its process is killed, and other bounds."""

    start_s: Seconds = 120.0
    build_s: Seconds = 300.0
    check_s: Seconds = 180.0
    time_s: Seconds = 120.0
    memory: str = ""  # of the host, per worker, such as 16G; empty: most of what is free
    quadratic: str = "8K"  # longest sequence for kernels whose memory grows with its square; --full lifts it
    workers: str = "kernel"  # a process per kernel, or "one" for all: faster where references are large, as they stay in its memory

    def with_deadline(self, seconds: float | None) -> Limits:
        """The same deadline for every step; starting a process and importing torch keeps at least its usual time."""
        if seconds is None:
            return self
        return replace(self, start_s=max(self.start_s, seconds), build_s=seconds, check_s=seconds, time_s=seconds)
