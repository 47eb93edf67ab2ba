"""The verdict of a check: the worst error of each tensor, and the sentence that says what is wrong, on which data or in which calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from longca.results.record import Check, TensorError
from longca.text import with_remark

if TYPE_CHECKING:
    from longca.bench.check.diagnosis import Diagnosis

UNSTEADY = "it gives different results on equal data (look for a race, memory that is never written, or state kept between calls)"
KEPT = "of an earlier call on other data (look for state kept between calls)"
LATER = "in a later call"
DATA_WORDS = {"plain": "plain data", "loud": "data with loud edges and large numbers"}


@dataclass(frozen=True)
class Error:
    """The worst token of one tensor: its error, what is allowed there, and where it is."""

    error: float
    allowed: float
    where: str
    element: str = ""  # what is there, and what should be
    data_set: str = ""
    gave: str = ""  # what is there, where its error is no finite number
    wrong: int = 0  # how many tokens are
    spread: str = ""  # which, and in which heads

    @property
    def ratio(self) -> float:
        if self.error == 0:
            return 0.0
        return self.error / self.allowed if self.allowed else math.inf

    @property
    def ok(self) -> bool:
        return self.error <= self.allowed

    def joined(self, other: Error | None) -> Error:
        """The worse of two calls' errors, with the tokens of the one in which more are wrong. Of two data sets on which it is wrong, the
        first is that of the plain numbers, and easier to read."""
        if other is None:
            return self
        if not other.ok and other.data_set != self.data_set:
            return other if other.wrong >= self.wrong else replace(other, wrong=self.wrong, spread=self.spread)
        worse, more = max(other, self, key=lambda error: error.ratio), max(other, self, key=lambda error: error.wrong)
        return replace(worse, wrong=more.wrong, spread=more.spread)

    def sentence(self, name: str, with_spread: bool, with_data: bool) -> str:
        error, allowed = tell_apart(self.error, self.allowed)
        where = f"{self.where} of the {self.data_set} data" if self.data_set and with_data else self.where
        text = f"off by {error} at {where}, allowed {allowed}"
        if math.isinf(self.error):
            text = f"{self.gave} at {where}"
        elif self.element and with_spread:
            text = f"off by {error} at {where} ({self.element}), allowed {allowed}"
        return ", ".join(part for part in (f"{name} is {text}", self.spread if with_spread else "") if part)


def tell_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with two digits, or with as many as it takes to see that they differ."""
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(2, 18))
    return next((pair for pair in texts if pair[0] != pair[1]), (f"{one:.2g}", f"{other:.2g}"))


class Compared(NamedTuple):
    """Whether the results of a call on a data set are right."""

    data_set: str
    ok: bool


@dataclass
class Verdict:
    """Per tensor the worst error of all calls, and in words whatever else went wrong."""

    errors: dict[str, Error] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    blamed: set[str] = field(default_factory=set)  # tensors that a problem is about
    first_ms: dict[str, float] = field(default_factory=dict)  # the wall time of the first call of each pass, in which kernels compile
    compared: list[Compared] = field(default_factory=list)  # in the order of the calls
    unequal: bool = False  # two wrong results on the same data differ from each other
    kept: list[str] = field(default_factory=list)  # wrong tensors that are the right ones of an earlier call on other data
    raised: str = ""  # what a call raised after another one was wrong
    diagnosis: Diagnosis | None = None  # of the first wrong call

    @property
    def ok(self) -> bool:
        return not self.problems and all(error.ok for error in self.errors.values())

    @property
    def tensor_errors(self) -> Check:
        """As records keep them."""
        return {name: TensorError(error.error, error.allowed) for name, error in self.errors.items()}

    @property
    def reason(self) -> str:
        """Why it is wrong, in a sentence; empty where it is right. Only the first wrong tensor has its tokens listed: the rest follows."""
        known = {name for name in self.blamed if name in self.errors and math.isinf(self.errors[name].error)}  # that it holds NaN is said
        wrong = {name: error for name, error in self.errors.items() if not error.ok and name not in known}
        first = "" if self.problems else next(iter(wrong), "")
        reason = self._only + "; ".join(
            [*self.problems, *(error.sentence(name, name == first, name == first and not self._only) for name, error in wrong.items())]
        )
        reason = reason if self.diagnosis is None else with_remark(reason, self.diagnosis.sentence)
        return with_remark(reason, f"{LATER} it raises {self.raised}") if self.raised else reason

    @property
    def steady(self) -> bool:
        """Whether all calls on the same data had the same outcome, as far as they were made."""
        return not self.unequal and len({call.data_set for call in self.compared}) == len(set(self.compared))

    @property
    def _only(self) -> str:
        """On which data it is wrong, in how many calls, or which results it keeps; empty where it is wrong in all calls in the same way."""
        if self.kept:
            return f"it returns the {' and '.join(self.kept)} {KEPT}: "
        wrong = [number for number, call in enumerate(self.compared) if not call.ok]
        if not wrong or (self.steady and len(wrong) == len(self.compared)):
            return ""
        if self.steady:
            return f"only on {DATA_WORDS[self.compared[wrong[0]].data_set]}: "
        return f"{UNSTEADY}, wrong in {len(wrong)} of {len(self.compared)} calls, first in call {wrong[0] + 1}: "

    def blame(self, tensor: str, problem: str) -> None:
        """Adds a problem of one tensor: "has the shape [4], not [8]"."""
        self.problems.append(f"{tensor} {problem}")
        self.blamed.add(tensor)

    def join(self, other: Verdict) -> None:
        """Adds the verdict on another call."""
        self.compared += other.compared
        self.problems += other.problems
        self.blamed |= other.blamed
        self.kept += other.kept
        self.first_ms = other.first_ms | self.first_ms
        self.errors |= {name: error.joined(self.errors.get(name)) for name, error in other.errors.items()}
