"""Who is fastest, on which masks, and by how much: the one rule for page, Markdown, terminal, `compare --kernel` and `recommend`.

Kernels are compared on the masks (one per seed) for which there are the most figures: the number of kernels that have all of these masks,
times the number of masks. A kernel that failed on one of its masks is out, with the reason; so is one that lacks some of these masks, and
where such a kernel is faster than the best on those that both have, other masks are taken. Training pays the sum over its steps, so kernels
are compared by their total time: a time is the mean over these masks, a speed is all work over all time. Two kernels are equal where the
interval of the ratio of their times reaches within `REPEATS` of 1 (`results.ratio`). The k-th sample of a total is the sum of k-th samples.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from longca.results.grouping import grouped, line_of
from longca.results.naming import Row
from longca.results.problem import Pass
from longca.results.ratio import ENOUGH_SAMPLES, as_fast
from longca.results.record import Record
from longca.results.versions import is_older

SETTLED_S = 0.1  # of load, after which an H200 is nearly always within 2.5 % of its final clock (results/h200/README.md)
NOT_MEASURED, FEWER_MASKS = "not measured", "fewer masks"


class Figure(Struct, frozen=True, gc=False):
    """One kernel on one mask: the times of a record, or the sum of a forward's and a backward's."""

    ms: float
    tflops: float
    mfu: float | None
    peak_gib: float | None
    records: tuple[Record, ...]
    samples: Sequence[float]  # of `ms`; a single one where the time was computed


def figure(records: Sequence[Record]) -> Figure:
    """The figure of one record, or of several passes together."""
    parts = [(record, record.times) for record in records]
    return together([Figure(own.median, own.tflops, own.mfu, record.peak_gib, (record,), own.samples) for record, own in parts])


def of_one_clock(rows: Sequence[Row]) -> Sequence[Row]:
    """The rows, with the times of records of one clock."""
    records = [row.record for row in rows]
    return [
        row if row.record is record else replace(row, record=record)
        for row, record in zip(rows, records_of_one_clock(records), strict=True)
    ]


def records_of_one_clock(records: Sequence[Record]) -> Sequence[Record]:
    """The records, as measured where some of GPUs have the clock of each sample, and others, of an older LongCA, have not: times at one
    clock and as measured differ by several percent."""
    timed = [record.times for record in records if record.ok and not record.simulated and record.times.clock_mhz]
    if len({times.clocks is None for times in timed}) < 2:
        return records
    return [replace(record, timed=record.times.as_measured) if record.ok else record for record in records]


def together(parts: Sequence[Figure]) -> Figure:
    """The figure of passes or masks one after the other: times and work add up, the peak memory is the largest."""
    first = parts[0]
    if len(parts) == 1:
        return first
    ms = sum([part.ms for part in parts])
    speed = sum([part.tflops * part.ms for part in parts]) / ms
    peaks = [part.peak_gib for part in parts if part.peak_gib is not None]
    return Figure(
        ms,
        tflops=speed,
        mfu=None if first.mfu is None else speed * first.mfu / first.tflops,
        peak_gib=max(peaks) if len(peaks) == len(parts) else None,
        records=tuple([record for part in parts for record in part.records]),
        samples=[sum(taken) for taken in zip(*[part.samples for part in parts], strict=False)],
    )


def mean(figures: Sequence[Figure]) -> Figure:
    """The mean time over masks, and all work over all time."""
    total, count = together(figures), len(figures)
    return replace(total, ms=total.ms / count, samples=[sample / count for sample in total.samples]) if count > 1 else total


class Out(Struct, frozen=True, gc=False):
    """A kernel that is not compared: its status, `not measured` or `fewer masks`, and the facts that say why (`results.words`)."""

    line: str
    status: str
    why: Mapping[str, Any]
    share: float | None = None  # its speed over the best one's on the masks that both have


@dataclass(frozen=True)
class Entry:
    """One kernel (or method, grid and kernel) in a contest: figures by the mask's digest, or why it is out. Its statistics are those of
    all its masks, computed once."""

    line: str
    figures: Mapping[str, Figure]
    out: Out | None = None
    failed: Record | None = None  # the record that says why it is out
    against_best: float = 1.0  # of one that is ranked: its speed over the best one's
    equal: bool = False  # of one that is ranked: as fast as the best, or the best itself

    @cached_property
    def records(self) -> list[Record]:
        return [record for figure in self.figures.values() for record in figure.records]

    @cached_property
    def whole(self) -> Figure:
        return mean([*self.figures.values()])

    @property
    def tflops(self) -> float:
        return self.whole.tflops

    @property
    def ms(self) -> float:
        return self.whole.ms

    @cached_property
    def speeds(self) -> tuple[float, float]:
        """The lowest and the highest of a mask."""
        speeds = [figure.tflops for figure in self.figures.values()]
        return min(speeds), max(speeds)

    @cached_property
    def times(self) -> tuple[float, float]:
        """The least and the most of a mask."""
        times = [figure.ms for figure in self.figures.values()]
        return min(times), max(times)

    @cached_property
    def nearest(self) -> Figure:
        """The figure of the mask whose speed is nearest to that of all."""
        return min(self.figures.values(), key=lambda figure: abs(figure.tflops - self.tflops))

    @cached_property
    def noisy(self) -> bool:
        return any(record.noisy for record in self.records)

    @property
    def samples(self) -> int:
        """The number of samples of the record that has the fewest."""
        return min(len(record.times.samples) for record in self.records)

    @property
    def few(self) -> bool:
        """Whether a record has too few samples to tell it from others."""
        return any(not record.simulated and len(record.times.samples) < ENOUGH_SAMPLES for record in self.records)

    @property
    def title(self) -> str:
        """The name, with `~` where a figure is noisy, and `?` where one has few samples."""
        return self.line + "~" * self.noisy + "?" * self.few

    def on(self, masks: Collection[str]) -> Entry:
        """The same kernel with its figures on these masks; with all of them where it has none of these."""
        return Entry(self.line, {digest: figure for digest, figure in self.figures.items() if digest in masks} or self.figures)

    def without(self, status: str, **why: Any) -> Entry:
        """The same kernel, out for these facts."""
        return Entry(self.line, {}, Out(self.line, status, why), self.failed)


@dataclass(frozen=True)
class Ranking:
    """Kernels in the order of their speed, and those that are out."""

    entries: tuple[Entry, ...]  # of all kernels, with all their masks
    standings: tuple[Entry, ...]  # of those that are compared, with the shared masks
    out: tuple[Out, ...]
    masks: frozenset[str]  # digests on which they are compared

    @property
    def best(self) -> Entry | None:
        return self.standings[0] if self.standings else None

    @property
    def equals(self) -> tuple[Entry, ...]:
        """The best, and all that are as fast."""
        return tuple(standing for standing in self.standings if standing.equal)

    @property
    def next(self) -> Entry | None:
        """The fastest that is slower than the best by what matters."""
        return next((standing for standing in self.standings if not standing.equal), None)

    def is_elsewhere(self, entry: Entry) -> bool:
        """Whether a kernel was measured on other masks than those on which kernels are compared."""
        return bool(self.masks and entry.figures) and not self.masks & entry.figures.keys()

    @cached_property
    def compared(self) -> dict[str, Entry]:
        """By line each kernel that has figures, with those on the masks on which kernels are compared: figures of one contest are of the
        same masks."""
        return {entry.line: entry.on(self.masks) for entry in self.entries if entry.figures}

    @cached_property
    def shares(self) -> dict[str, float]:
        """By line its speed as a share of the fastest, on the masks that it has; 1 for all that are as fast."""
        fewer = {out.line: min(1.0, out.share) for out in self.out if out.share is not None}
        return fewer | {standing.line: 1.0 if standing.equal else standing.against_best for standing in self.standings}


def entries(rows: Iterable[Row], pass_: Pass, part_of: Pass | None = None) -> list[Entry]:
    """One entry per kernel. Of several records of one kernel on one mask the last counts, one of the present code before older ones, and a
    forward of the right kind before others: the one of inference where forwards are compared, else the one that keeps what a backward
    needs. `part_of` is the pass that `pass_` is a part of, whose kind of forward counts."""
    return [_entry(line, own, pass_, part_of or pass_) for line, own in grouped(of_one_clock(list(rows)), line_of).items()]


def _entry(line: str, rows: Iterable[Row], pass_: Pass, kind: Pass) -> Entry:
    by_mask: dict[str, dict[Pass, Record]] = {}
    for row in rows:
        record = row.record
        passes = by_mask.setdefault(record.built.digest, {})
        other = passes.get(record.problem.pass_)
        if other is None or _rank_of(record, kind) >= _rank_of(other, kind):  # of one kind the last counts
            passes[record.problem.pass_] = record
    figures: dict[str, Figure] = {}
    failed: list[Record] = []
    missing: set[str] = set()
    parts = pass_.parts
    for digest, passes in by_mask.items():
        whole = passes.get(pass_)
        chosen = [whole] if whole is not None else [passes[part] for part in parts if part in passes]
        bad = [record for record in chosen if not record.ok]
        if bad:
            failed.append(bad[0])
        elif whole is not None or len(chosen) == len(parts):
            figures[digest] = figure(chosen)
        if whole is None:
            missing.update(part for part in parts if part not in passes)
    if failed:
        seeds = sorted({record.problem.seed for record in failed})
        why = {"reason": failed[0].reason} | ({"seeds": seeds, "masks": len(failed) + len(figures)} if figures else {})
        return Entry(line, figures, Out(line, failed[0].status.value, why), failed[0])
    if not figures:
        return Entry(line, {}, Out(line, NOT_MEASURED, {"lacks": sorted(missing)}))
    return Entry(line, figures)


def _rank_of(record: Record, pass_: Pass) -> tuple[bool, bool]:
    """The larger, the more a record counts among several of one kernel, mask and pass."""
    suits = record.problem.pass_ is not Pass.FWD or record.grad == (pass_ is not Pass.FWD)
    return suits, not is_older(record)


def _mask_sets(timed: Sequence[Entry], kept: Collection[str]) -> list[frozenset[str]]:
    """The masks of each kernel and those that two have in common; first those on which two kernels or more are compared, one of the `kept`
    among them, and of these the one with the most figures."""
    sets = {entry.line: frozenset(entry.figures) for entry in timed}

    def worth(masks: frozenset[str]) -> tuple[object, ...]:
        having = [line for line, own in sets.items() if masks <= own]
        several = len(having) > 1
        return several and not set(kept).isdisjoint(having), several, len(having) * len(masks), len(masks), sorted(masks)

    return sorted({own & other for own in sets.values() for other in sets.values()} - {frozenset()}, key=worth, reverse=True)


def rank(candidates: Iterable[Entry], kept: Collection[str] = ()) -> Ranking:
    """Kernels in the order of their speed on the masks with the most figures; one of the `kept` lines is among them if it can be."""
    everyone = tuple(candidates)
    sets = _mask_sets([entry for entry in everyone if entry.out is None], kept)
    rankings = [_ranking(everyone, masks) for masks in sets or [frozenset()]]
    return next((ranking for ranking in rankings if all(out.share is None or out.share < 1 for out in ranking.out)), rankings[0])


def _ranking(everyone: tuple[Entry, ...], shared: frozenset[str]) -> Ranking:
    timed = [entry for entry in everyone if entry.out is None]
    standings = _standings(timed, shared)
    out = [entry.out for entry in everyone if entry.out is not None]
    out += [_unshared(entry, standings[0]) for entry in timed if not shared <= entry.figures.keys()]
    return Ranking(everyone, tuple(standings), tuple(sorted(out, key=lambda one: one.line)), shared)


def _unshared(entry: Entry, best: Entry) -> Out:
    both = entry.figures.keys() & best.figures.keys()
    why = {"common": len(both), "of": len(best.figures), "best": best.line}
    if not both:
        return Out(entry.line, NOT_MEASURED, why)
    share = sum(best.figures[digest].ms for digest in both) / sum(entry.figures[digest].ms for digest in both)
    return Out(entry.line, FEWER_MASKS, why, share)


@cache
def _complexity(method: str | None) -> float:
    """The place of a method in `longca ls cp`, which names the simplest first: of two that are exactly as fast, the simpler is named first.
    A method that is not known here comes last."""
    if method is None:
        return 0.0
    from longca.parallel import registry

    return registry.get(method).order if method in registry.names() else math.inf


def _standings(timed: Iterable[Entry], shared: frozenset[str]) -> list[Entry]:
    """The standings of the kernels that have all of these masks, the fastest first; masks in the order of their seeds."""
    having = [entry for entry in timed if shared and shared <= entry.figures.keys()]
    if not having:
        return []
    digests = sorted(shared, key=lambda digest: (having[0].figures[digest].records[0].problem.seed, digest))
    compared = [Entry(entry.line, {digest: entry.figures[digest] for digest in digests}) for entry in having]
    compared.sort(key=lambda entry: (-entry.tflops, _complexity(entry.records[0].method), entry.line))
    best = compared[0].whole
    return [
        Entry(own.line, own.figures, None, None, own.tflops / best.tflops, as_fast(own.whole.samples, best.samples)) for own in compared
    ]
