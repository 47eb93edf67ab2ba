"""The time of planning, without that of loading code.

In older records the first plan of a process, or of a new shape, also loads code, which takes 10 to 30 ms and is no part of planning a new
mask. A plan lowers a mask, so its time depends little on the query heads; it grows with the length and the number of documents, and that of
cudnn_flex:documents with the KV heads. So where a plan took much longer than others of the same mask, at the same length or a longer one,
with as many documents and KV heads or more, the least of these counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from msgspec.structs import replace as replace_fields

from longca.recommend.neighbours import SHAPE, shape_of
from longca.results.points import grouped
from longca.results.ranking import NOT_MEASURED, Entry, Figure
from longca.results.reading import Results
from longca.results.record import Record
from longca.text import format_tokens

LONGER = 3.0  # times the least plan that should have taken as long or longer: a plan that took longer still may have loaded code
SIMULATED = "simulated records have no planning time"

_alike = attrgetter(
    *("label", "mask", "seed", "dtype", "deterministic", "softcap", "sinks", "pass_", "grad", "method", "ranks", "grid", "options"),
    *("simulated", "source", "params", "given.distribution", "given.packing", "given.documents"),
)
_problem = attrgetter("seqlen", *SHAPE)


class Plans:
    """The planning times of these results."""

    def __init__(self, results: Results) -> None:
        self._results = results
        self._by_kernel: dict[tuple[str, str], list[Record]] | None = None

    def ms(self, figure: Figure) -> float | None:
        """The time of the plan, which serves both passes of a kernel; that of both plans where there are two kernels. A nearest answer has
        that of the nearest length."""
        plans: dict[str, float] = {}
        for record in _planned(figure):
            least = self._counting(record).plan_ms
            if least is None:
                return None
            plans[record.label] = max(plans.get(record.label, 0.0), least)
        return sum(plans.values())

    def others(self, figures: Iterable[Figure]) -> tuple[str, ...]:
        """The shapes and lengths that these plans are of, where they are not the records' own."""
        pairs = [(record, self._counting(record)) for figure in figures for record in _planned(figure)]
        return tuple(dict.fromkeys(_difference(record, least) for record, least in pairs if _problem(least) != _problem(record)))

    def counted(self, entry: Entry, calls_per_plan: int | None) -> Entry:
        """The entry with the planning's part in every time; out if its planning was not timed."""
        if calls_per_plan is None or entry.out:
            return entry
        figures = {}
        for digest, figure in entry.figures.items():
            plan_ms = self.ms(figure)
            if plan_ms is None:
                why = SIMULATED if figure.records[0].simulated else "its planning was not timed"
                return entry.without(NOT_MEASURED, f"{why}, so --calls-per-plan cannot be answered")
            more = plan_ms / calls_per_plan
            speed = figure.tflops * figure.ms / (figure.ms + more)
            share = figure.mfu and figure.mfu * speed / figure.tflops
            times = {"ms": figure.ms + more, "p20": figure.p20 + more, "p80": figure.p80 + more}
            figures[digest] = replace_fields(figure, **times, tflops=speed, mfu=share)
        return replace_fields(entry, figures=figures)

    def _counting(self, record: Record) -> Record:
        """The record whose plan counts: the one with the least plan of this kernel for this mask and pass, at this length or a longer one
        and with as many KV heads or more, by the same versions on the same device; the record itself unless its plan took much longer."""
        if record.plan_ms is None:
            return record
        if self._by_kernel is None:
            self._by_kernel = grouped(self._results.records, attrgetter("mask", "label"))
        wanted, machine = _alike(record), self._machine(record)
        least, least_ms = record, record.plan_ms / LONGER
        for other in self._by_kernel.get((record.problem.mask, record.label), ()):
            is_less = (
                other.ok and other.plan_ms is not None and other.plan_ms < least_ms and other.problem.heads_kv >= record.problem.heads_kv
            )
            is_longer = other.problem.seqlen > record.problem.seqlen and self._documents(other) >= self._documents(record)
            is_bound = is_longer or other.built.digest == record.built.digest
            if is_less and is_bound and _alike(other) == wanted and self._machine(other) == machine:
                least, least_ms = other, other.plan_ms or 0.0
        return least

    def _documents(self, record: Record) -> int:
        """How many documents its mask has; 0 where the journal does not tell."""
        entry = self._results.masks.get((record.built.digest, record.problem.mask))
        return len(entry.documents or ()) if entry else 0

    def _machine(self, record: Record) -> tuple[object, ...]:
        """The device and the versions; the environment where a record does not tell its versions."""
        return self._results.environment(record).name, record.versions or record.env


def _difference(record: Record, other: Record) -> str:
    """The heads or the length of another record, whichever differ."""
    shape = "" if _problem(other)[1:] == _problem(record)[1:] else shape_of(other)
    length = "" if other.problem.seqlen == record.problem.seqlen else format_tokens(other.problem.seqlen)
    return " and ".join(filter(None, (shape, length)))


def _planned(figure: Figure) -> list[Record]:
    """The records whose plans count: those of the nearest length."""
    return [record for record in figure.records if record.problem.seqlen == figure.records[0].problem.seqlen]
