"""Simulated records that answer a question but for its cluster, or for how its documents are drawn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from longca.recommend.matching import Near
from longca.recommend.question import Question
from longca.results.record import Record

COMPLETED = frozenset({"--cluster", "--distribution", "--packing"})  # what a question may leave open, and records give


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


def other_documents(question: Question) -> str:
    """A remark on documents that are not those asked for."""
    drawn = {"--distribution": question.distribution, "--packing": question.packing}
    flags = " ".join(f"{flag} {value}" for flag, value in drawn.items() if value)
    return f"no simulated record of this has documents of the default lengths; the only ones are those of {flags}, which answer."
