"""Kernels that an answer does not compare, for want of a record, and that are the fastest at another length."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from longca.recommend.matching import Differences, Near
from longca.recommend.question import Question
from longca.recommend.unmeasured import case_of, refusal, sample_mask
from longca.results.naming import rows
from longca.results.points import grouped
from longca.results.ranking import Entry, entries, rank
from longca.results.reading import Results
from longca.results.record import Environment
from longca.text import format_tokens

FAR = 8.0  # times shorter or longer: what is the fastest so far away says little


@dataclass(frozen=True)
class FastestElsewhere:
    """The fastest kernels at a length near the one that is asked for, and the speed of the recommended one over theirs."""

    seqlen: int
    kernels: tuple[str, ...]
    recommended: str
    ratio: float

    def sentence(self) -> str:
        are, they = ("are", "they are") if len(self.kernels) > 1 else ("is", "it is")
        missing = f"{', '.join(self.kernels)} {are} not compared here, for want of a record"
        there = f"at {format_tokens(self.seqlen)} {they} the fastest"
        return f"{missing}; {there}, and {self.recommended} has {self.ratio:.2f} times the speed."

    def to_json(self) -> dict[str, Any]:
        return {"seqlen": self.seqlen, "kernels": list(self.kernels), "ratio": self.ratio}


def fastest_elsewhere(
    question: Question,
    recommended: str,
    compared: Collection[str],
    others: Sequence[Near],
    results: Results,
    used: Near,
    competing: Callable[[Entry], Entry],
) -> FastestElsewhere | None:
    """The nearest length decides that has records of the recommended kernel and of others than those `compared` here. None where the
    recommended one is among the fastest there, or the others do not take what is asked. `used` is a record that the answer rests on, and
    `competing` is an entry as this question compares it."""
    shape = _but_length(used)
    by_length = grouped([near.record for near in others if _but_length(near) == shape], lambda record: record.problem.seqlen)
    for seqlen in sorted(by_length, key=lambda length: (round(abs(math.log2(length / question.seqlen)), 6), -length)):
        if max(seqlen / question.seqlen, question.seqlen / seqlen) > FAR:
            return None
        measured = entries(rows(replace(results, records=by_length[seqlen])), question.pass_)
        ranking = rank(competing(entry) for entry in measured)
        known = ranking.of(recommended)
        if known is None or all(standing.line in compared for standing in ranking.standings):
            continue
        fastest = [] if known.equal else [standing.line for standing in ranking.equals]
        missing = tuple(line for line in fastest if line not in compared and _takes(line, question, used.environment))
        return FastestElsewhere(seqlen, missing, recommended, known.against_best) if missing else None
    return None


def _but_length(near: Near) -> tuple[str, Differences]:
    """The device, and in what else than the length a record differs from the question."""
    return near.environment.name, {flag: value for flag, value in near.differences.items() if flag != "--seqlen"}


def _takes(label: str, question: Question, machine: Environment) -> bool:
    sample = sample_mask(question)
    return not refusal(label, sample, case_of(question, sample, "cpu" if machine.on_cpu else "cuda"))
