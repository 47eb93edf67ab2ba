"""Simulated records that answer a question but for its cluster, or for how its documents are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from longca.recommend.matching import Near
from longca.recommend.question import Question
from longca.results.record import Record

OPEN_FLAGS = frozenset({"--cluster", "--distribution", "--packing"})  # what a question may leave open, and records give


def simulated_questions(question: Question, others: Iterable[Near]) -> list[Question]:
    """The questions that simulated records answer and that add to this one what it does not give: a cluster, a distribution of document
    lengths, a packing."""
    given = {"--cluster": question.cluster, "--distribution": question.distribution, "--packing": question.packing}
    free = {flag for flag, value in given.items() if value is None}
    found = [near.record for near in others if near.record.simulated and near.differences and near.differences.keys() <= free]
    return list(dict.fromkeys(_completed(question, record) for record in found))


def _completed(question: Question, record: Record) -> Question:
    drawn = record.given
    return replace(question, cluster=question.cluster or record.simulated, distribution=drawn.distribution, packing=drawn.packing)


def other_documents(asked: Question, answered: Question) -> str:
    """A remark on how the documents of the answer were drawn, where the question left that open."""
    pairs = {"--distribution": (asked.distribution, answered.distribution), "--packing": (asked.packing, answered.packing)}
    flags = " ".join(f"{flag} {value}" for flag, (given, value) in pairs.items() if value and given is None)
    return f"the simulated records have documents of {flags}; these are used."
