"""What a nearest answer is scaled from: records near the question, or else near the same question without softcap and sinks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from longca.recommend.matching import Near, sorted_out
from longca.recommend.neighbours import Neighbours, neighbours
from longca.recommend.question import Question
from longca.results.reading import Results
from longca.text import format_extras

EXTRAS = ("--softcap", "--sinks")  # without which records answer where none has them


@dataclass(frozen=True)
class Basis:
    """Records, and the question that they are near to."""

    question: Question
    candidates: list[Near]
    found: Neighbours
    lacking: tuple[str, ...] = ()  # what is asked for and no record has: 'softcap 50', 'sinks'

    @property
    def differences(self) -> list[str]:
        """A sentence on what no record has."""
        them = "it" if self._is_one else "them"
        what = " and ".join(self.lacking)
        return [f"no record near this has {what}: the times are without {them}, of kernels that take {them}"] if what else []

    @property
    def unknown(self) -> list[str]:
        """Why the error is unknown, where no record has something."""
        return [f"no record tells what {' and '.join(self.lacking)} {'costs' if self._is_one else 'cost'}"] if self.lacking else []

    @property
    def _is_one(self) -> bool:
        """Whether a verb that follows is singular: there are several sinks."""
        return len(self.lacking) == 1 and "sinks" not in self.lacking


def basis_of(question: Question, others: list[Near], results: Results) -> Basis | None:
    """The nearest records; where none is near enough, those without the softcap and the sinks that are asked for."""
    if found := neighbours(question, others):
        return Basis(question, others, found)
    plain = replace(question, softcap=0.0, sinks=False)
    if plain == question:
        return None
    candidates = [near for group in sorted_out(plain, results) for near in group]
    found = neighbours(plain, candidates)
    lacking = format_extras({"softcap": question.softcap, "sinks": question.sinks})
    return Basis(plain, candidates, found, tuple(lacking)) if found else None
