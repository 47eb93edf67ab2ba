"""Two kernels timed in turns: the verdict of each mask, length and pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any

from longca.compare import words
from longca.compare.paired import LOOKS, Round, ratio_of_rounds
from longca.compare.verdicts import ORDER, REGRESSIONS, Verdict, decide, why_open
from longca.results.problem import Problem
from longca.results.ratio import Ratio
from longca.results.record import AT_FAULT, Outcome, Status
from longca.results.shown import Part, Shown
from longca.results.tables import Table
from longca.text import format_duration, format_size, plural

COLUMNS = ["verdict", "mask", "length", "pass", "shape", "A", "B", "time", "interval", "rounds", "why"]


@dataclass(frozen=True)
class Pair:
    """One pass on one problem: the times of A and B in each round, and the outcomes of both where one failed."""

    problem: Problem
    threshold: float
    rounds: Sequence[Round] = ()
    failed: Sequence[Outcome] = ()

    @cached_property
    def ratio(self) -> Ratio | None:
        return ratio_of_rounds(self.rounds) if self.rounds else None

    def ms(self, side: int) -> float | None:
        """The median time of A (0) or B (1)."""
        return median(turn[side] for turns in self.rounds for turn in turns) if self.rounds else None

    @property
    def verdict(self) -> Verdict:
        if self.ratio is not None:
            return decide(self.ratio, self.threshold)
        a, b = (outcome.status is Status.OK for outcome in self.failed)
        return Verdict.BROKEN if a else Verdict.MENDED if b else Verdict.UNMEASURED

    @property
    def why(self) -> str:
        """Why a side has no time, or why there is no verdict; empty where there is one."""
        if self.ratio is None:
            both = [(side, outcome) for side, outcome in zip("AB", self.failed, strict=True) if outcome.status is not Status.OK]
            return "; ".join(f"{side} is {outcome.status}: {' '.join(outcome.reason.split())}" for side, outcome in both)
        if self.verdict is not Verdict.UNCLEAR:
            return ""
        if self.ratio.few:
            return f"fewer than {LOOKS[0]} rounds; give more --seconds"
        return f"{words.why(why_open(self.ratio, self.threshold))}; more --seconds may decide it"


@dataclass(frozen=True, repr=False)
class AB(Shown):
    """The verdicts on B, compared with A."""

    names: tuple[str, str]
    device: str
    pairs: list[Pair]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether B is right, and slower in no pair. What both sides refuse is no failure."""
        failed = any(pair.failed and pair.failed[1].status in AT_FAULT for pair in self.pairs)
        return not failed and not any(pair.verdict in REGRESSIONS for pair in self.pairs)

    @property
    def _sorted(self) -> list[Pair]:
        """The worst first."""
        return sorted(self.pairs, key=lambda pair: ORDER[pair.verdict])

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [
            {
                "verdict": pair.verdict.value,
                "mask": pair.problem.mask,
                "seqlen": pair.problem.seqlen,
                "pass": pair.problem.pass_.value,
                "shape": words.shape(pair.problem),
                "a_ms": pair.ms(0),
                "b_ms": pair.ms(1),
                **words.ratio_columns(pair.ratio),
                "rounds": len(pair.rounds),
                "why": pair.why,
            }
            for pair in self._sorted
        ]

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "names": self.names, "device": self.device, "pairs": self.rows}

    def parts(self) -> list[Part]:
        shown = []
        for row, pair in zip(self.rows, self._sorted, strict=True):
            times = ["" if row[side] is None else f"{row[side]:.4g} ms" for side in ("a_ms", "b_ms")]
            title = [pair.problem.mask_title, format_size(row["seqlen"]), row["pass"], words.shape(pair.problem)]
            shown.append([row["verdict"], *title, *times, *words.change(pair.ratio), str(row["rounds"]), row["why"]])
        used = len(COLUMNS) if any(row[-1] for row in shown) else len(COLUMNS) - 1
        took = f"{plural(len(shown), 'pair')} in {format_duration(self.seconds)}"
        return [
            f"A: {self.names[0]}; B: {self.names[1]}",
            Table(self.device, COLUMNS[:used], [row[:used] for row in shown]),
            f"{took}; a change below {100 * self.pairs[0].threshold:g} % counts as SAME (--threshold).",
        ]
